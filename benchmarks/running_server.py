"""A real server in a process of its own, for the length of a block. Not a benchmark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

from inkling_core.serving.settings import ServeSettings

SERVE = "from inkling_core.serving import server, settings; server.serve(settings.ServeSettings())"

LOGGED = 8000  # characters: the engine's stack trace, then the front end's


@contextmanager
def running(settings: ServeSettings) -> Iterator[None]:
    """Ready at the start of the block. RuntimeError if it dies before, or its port is taken.

    Whatever goes wrong, here or in the block, the end of the server's log goes to stderr first: an
    engine's fault reaches the client as a bare 500.
    """
    if _is_taken(settings.port):
        raise RuntimeError(
            f"port={settings.port} is taken, and its server would be measured instead"
        )
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE],
            env={**os.environ, **settings.environment()},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            while not _is_healthy(settings.port):
                if process.poll() is not None:
                    raise RuntimeError(f"the server ended with status {process.returncode}")
                time.sleep(1)
            yield
        except Exception:
            log.seek(0)
            print(f"end of the server's log:\n{log.read()[-LOGGED:]}", file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait()


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_healthy(port: int) -> bool:
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
