"""Raw completions as streams that go on until somebody ends them: what a busy server is busy with.

Not chat (`client`): a stream's text means nothing, its tokens are counted. Each runs in a thread of
its own; closing the connection ends the request in the server.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from inkling_core.gates.client import Client

POLL = 0.02  # seconds between two looks at counters


class Stream:
    """A completion that decodes until `close`; `ids` are its tokens so far.

    Args:
        client: the server.
        prompt: text, tokenised by the server.
        max_tokens: where it ends by itself.
    """

    def __init__(self, client: Client, prompt: str, max_tokens: int) -> None:
        self.ids: list[int] = []
        self.error: str | None = None
        body = {
            "model": client.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
        }
        headers = {"content-type": "application/json"}
        if client.api_key:
            headers["authorization"] = f"Bearer {client.api_key}"
        address = urlsplit(client.url)
        kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
        self._connection = kind(address.netloc, timeout=client.timeout)
        self._closed = False
        path = f"{address.path}/v1/completions"
        self._connection.request("POST", path, json.dumps(body), headers)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            response = self._connection.getresponse()
            if response.status != 200:
                self.error = f"HTTP {response.status}: {response.read()[:200]!r}"
                return
            for line in response:
                if self._closed:
                    return
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:]).get("choices", ()):
                        self.ids += choice.get("token_ids") or ()
            self.error = f"the server was done after {len(self.ids)} tokens"
        except (OSError, HTTPException, ValueError) as error:
            if not self._closed:
                self.error = f"{type(error).__name__}: {error}"
        finally:
            self._connection.close()

    def close(self) -> None:
        """End it. Waits for the thread, which reads at most one line more."""
        self._closed = True
        self._thread.join(timeout=30)


@contextmanager
def streaming(
    client: Client, prompts: Sequence[str], max_tokens: int
) -> Iterator[tuple[Stream, ...]]:
    """One stream per prompt for the length of the block."""
    with ExitStack() as stack:
        streams = []
        for prompt in prompts:
            streams.append(Stream(client, prompt, max_tokens))
            stack.callback(streams[-1].close)
        yield tuple(streams)


def wait_for(streams: Sequence[Stream], tokens: int, seconds: float) -> None:
    """Until every stream has made `tokens` more. RuntimeError: one of them failed or stands still.

    seconds: how long that may take.
    """
    goals = [len(stream.ids) + tokens for stream in streams]
    deadline = time.monotonic() + seconds
    while any(len(stream.ids) < goal for stream, goal in zip(streams, goals, strict=True)):
        failed = [stream.error for stream in streams if stream.error]
        if failed:
            raise RuntimeError(f"a stream ended: {failed[0]}")
        if time.monotonic() > deadline:
            counts = [len(stream.ids) for stream in streams]
            raise RuntimeError(f"streams stand still: {counts} tokens after {seconds:.0f} s")
        time.sleep(POLL)
