"""What a long prompt's prefill does to others: eight streams and short requests beside it.

Not a benchmark of speed: every figure is a ratio of two of the same server, taken side by side,
streams before and after the prefill against streams during it, short requests against the long one.
`benchmarks/long_prefill.py` takes the same figures with the share on and off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from inkling_core.gates.client import Reply
from inkling_core.gates.streams import Stream, streaming, wait_for
from inkling_core.gates.verdict import Request, Target

STREAMS, ALONE = 8, 48  # how many, and tokens of each in a window without the long prompt
SHORTS = 3


@dataclass(frozen=True)
class Figures:
    """One measurement.

    kept: tokens per second of all streams until the long prompt's first token, as a part of those
    before and after. waits: seconds to the first token of the short requests sent meanwhile.
    seconds: to the first token of the long one. answers: the long one's, then the short ones'.
    streams: the tokens of each stream.
    """

    kept: float
    waits: tuple[float, ...]
    seconds: float
    answers: tuple[Reply, ...]
    streams: tuple[tuple[int, ...], ...]

    @property
    def worst_wait(self) -> float:
        """The longest wait of a short request as a part of the long one's."""
        return max(self.waits) / self.seconds


def measure(target: Target, long: Request, shorts: Sequence[Request]) -> Figures:
    """Streams alone, streams beside `long` and `shorts`, streams alone again.

    Raises RuntimeError where a stream ends early or stands still for the client's timeout.
    """
    client = target.client
    # distinct from the first character on: no stream shares a prefix with another
    prompts = [f"{i} river stone light field" for i in range(STREAMS)]
    with streaming(client, prompts, client.max_model_len() - 64) as streams:
        wait_for(streams, 8, client.timeout)
        before = _rate_alone(streams, client.timeout)
        count = _count(streams)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(_ask, target, long, lambda: _count(streams))
            asked = []
            for short in shorts:
                time.sleep(0.2)  # the prompt before it is on its way
                asked.append(_ask(target, short))
            answer, seconds, at_first = running.result()
        after = _rate_alone(streams, client.timeout)
        ids = tuple(tuple(stream.ids) for stream in streams)
    kept = (at_first - count) / seconds / ((before + after) / 2)
    answers = (answer, *(reply for reply, _, _ in asked))
    return Figures(kept, tuple(wait for _, wait, _ in asked), seconds, answers, ids)


def _rate_alone(streams: Sequence[Stream], timeout: float) -> float:
    count, began = _count(streams), time.monotonic()
    wait_for(streams, ALONE, timeout)
    return (_count(streams) - count) / (time.monotonic() - began)


def _count(streams: Sequence[Stream]) -> int:
    return sum(len(stream.ids) for stream in streams)


def _ask(
    target: Target, request: Request, look: Callable[[], int] = lambda: 0
) -> tuple[Reply, float, int]:
    """The answer, the seconds to its first token, and what `look` said then."""
    seen: list[tuple[float, int]] = []
    began = time.monotonic()
    reply = target.client.stream(
        request.messages,
        on_first=lambda: seen.append((time.monotonic() - began, look())),
        tools=request.tools,
        effort=request.effort,
        max_tokens=request.max_tokens,
    )
    if not seen:
        raise RuntimeError("a request was answered with nothing at all")
    return reply, *seen[0]
