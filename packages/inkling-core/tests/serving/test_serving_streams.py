"""Streams beside a long prompt, and a client's time limit, against a server of a few lines.

Not the figures taken of them (`test_gates_long.py` judges those) and not a model: the server sends
the tokens that a case names and then ends the stream, keeps silent, or refuses.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("openai", reason="NO STREAM TESTS: the openai client is not installed here")

from inkling_core.gates.client import TIMED_OUT, Client, Refusal
from inkling_core.gates.streams import streaming, wait_for

REFUSED, SILENT, LONG_ENOUGH = "refused", "silent", 60.0
Serve = Callable[..., Client]


class Handler(BaseHTTPRequestHandler):
    """A prompt is the number of tokens to send, or one of the words above."""

    silence = threading.Event()

    def do_GET(self) -> None:
        self.reply(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = body.get("prompt", SILENT)
        if prompt == SILENT:
            self.silence.wait(LONG_ENOUGH)
            return
        if prompt == REFUSED:
            self.reply(400, {"message": "no such prompt"})
            return
        self.send_response(200)
        self.end_headers()
        for token in range(int(prompt)):
            chunk = {"choices": [{"token_ids": [token]}]}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def reply(self, status: int, content: dict) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Serve]:
    Handler.silence.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield lambda **options: Client(f"http://127.0.0.1:{server.server_port}", **options)
    Handler.silence.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("prompt", "told", "tokens"),
    [
        ("5", "a stream ended: the server was done after 5 tokens", [0, 1, 2, 3, 4]),
        (REFUSED, "a stream ended: HTTP 400: .*no such prompt", []),
    ],
    ids=["ends", "refused"],
)
def test_a_stream_that_stops_is_told(serve, prompt, told, tokens):
    with streaming(serve(), [prompt], 100) as (stream,):
        with pytest.raises(RuntimeError, match=told):
            wait_for([stream], 6, LONG_ENOUGH)
        assert stream.ids == tokens


def test_a_stream_that_keeps_silent_is_told(serve):
    with (
        streaming(serve(timeout=0.2), [SILENT], 100) as streams,
        pytest.raises(RuntimeError, match="a stream ended: TimeoutError"),
    ):
        wait_for(streams, 1, LONG_ENOUGH)


def test_streams_that_stand_still_are_told():
    still: Any = SimpleNamespace(ids=[7], error=None)
    with pytest.raises(RuntimeError, match=r"streams stand still: \[1\] tokens"):
        wait_for([still], 1, 0.0)


def test_a_server_that_hangs_is_a_refusal(serve):
    reply = serve(timeout=0.2).chat([{"role": "user", "content": "?"}])
    assert isinstance(reply, Refusal)
    assert reply.status == TIMED_OUT and "no answer within timeout" in reply.message
