"""A real server in a process of its own, for the length of a block. Not a benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

from inkling_core.serving.settings import ServeSettings

SERVE = "from inkling_core.serving import server, settings; server.serve(settings.ServeSettings())"


@contextmanager
def running(settings: ServeSettings) -> Iterator[None]:
    """Ready at the start of the block. Raises RuntimeError with the end of its log if it dies."""
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
                    log.seek(0)
                    raise RuntimeError(f"the server died:\n{log.read()[-3000:]}")
                time.sleep(1)
            yield
        finally:
            process.terminate()
            process.wait()


def _is_healthy(port: int) -> bool:
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
