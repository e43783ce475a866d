"""Speed, memory and linearity of inkling-parsers, beside vLLM 0.32's parser and tml-renderers.

    python benchmarks/parsers.py [--rounds 5] [--quick] [--tml-python PATH] [--only NAME ...]

Run it with a Python that has vLLM 0.32 for the first comparison, and name a Python that has
tml-renderers 0.2.1 for the second; what is missing is left out, and said so. Times are CPU seconds
of this process (`time.process_time`), medians over the rounds, so that a busy machine counts less.
All parsers of one comparison run in one process on the same input in the same pieces, and a ratio
is printed only if all of them gave the same answer in that run.

    linear    time per token at 1k .. 200k tokens, one token per feed: thinking, and a tool call
    rates     ids on text, text in one feed, a tool call in one feed
    memory    peak of a stream whose events are sent on and forgotten, per token
    vllm      a 2,000-token tool call, token by token: through vLLM's composed parser with its own
              parsers and with ours (both take text and ids, answer vLLM's delta objects, and count
              what vLLM counts), and through our parser alone (ids and their text, our events)
    tml       the same call, whole, as token ids

Not a test: the exit status is 1 if an answer is wrong or a target is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from inkling_parsers.events import ArgumentsDelta, ContentDelta, Event, ReasoningDelta
from inkling_parsers.markers import REQUIRED, Marker, SpecialTokens
from inkling_parsers.parser import StreamParser, parse

SIZES = (1_000, 10_000, 50_000, 200_000)
CALL_TOKENS = 2_000
WORDS = ("the ", "grid", " of ", "fjo", "rd, ", "is ", "wide", " and", " 42 ", "a <b", "no\\n")

TOKENS_PER_SECOND = 300_000
TEXT_MB_PER_SECOND = 5.0
CALL_MB_PER_SECOND = 2.0
FASTER_THAN_VLLM = 500.0
FLAT = 1.5  # time per token at the largest size over the smallest, at most
BYTES_PER_TOKEN = 64.0  # peak, most of it the caller's own input

VOCABULARY = SpecialTokens.from_vocab({marker.value: i for i, marker in enumerate(REQUIRED)})
FIRST_ORDINARY = 1_000


class Report:
    """Prints one line per figure and remembers what failed."""

    def __init__(self) -> None:
        self.failed = False

    def line(self, name: str, value: str, is_met: bool | None = None) -> None:
        verdict = {None: "", True: "  ok", False: "  MISSED"}[is_met]
        self.failed = self.failed or is_met is False
        print(f"{name:<52} {value}{verdict}", flush=True)


def median_seconds(run: Callable[[], object], rounds: int) -> float:
    """CPU seconds of `run`, median."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return statistics.median(times)


# ---- inputs: one token is 4 characters, or one special token ------------------------------------


def words(count: int) -> list[str]:
    return [WORDS[at * 7 % len(WORDS)] for at in range(count)]


def thinking(count: int) -> tuple[list[int], list[str]]:
    """Ids and texts of a thinking block of `count` tokens and a short answer."""
    pieces = [Marker.CONTENT_THINKING, *words(count), Marker.END_MESSAGE, Marker.MESSAGE_MODEL]
    return as_ids([*pieces, Marker.CONTENT_TEXT, "done", Marker.END_MESSAGE])


def tool_call(count: int) -> tuple[list[int], list[str]]:
    """Ids and texts of one call whose argument is a string of `count` tokens."""
    opening = ['{"na', 'me":', '"wri', 'te",', '"arg', 's":{', '"tex', 't":"']
    return as_ids([Marker.CONTENT_INVOKE_TOOL_JSON, *opening, *words(count), '"}}'])


def as_ids(pieces: Sequence[Marker | str]) -> tuple[list[int], list[str]]:
    known: dict[str, int] = {}
    ids = [
        VOCABULARY.ids[piece]
        if isinstance(piece, Marker)
        else known.setdefault(piece, FIRST_ORDINARY + len(known))
        for piece in pieces
    ]
    return ids, [str(piece) for piece in pieces]


def stream(ids: list[int], texts: list[str], step: int = 1) -> Iterator[list[Event]]:
    """Feed `step` tokens at a time; the caller keeps events or not."""
    parser = StreamParser(VOCABULARY)
    for at in range(0, len(ids), step):
        yield parser.feed(ids[at : at + step], texts[at : at + step])
    yield parser.finish()


def drain(ids: list[int], texts: list[str], step: int = 1) -> None:
    for _ in stream(ids, texts, step):
        pass


# ---- linear, rates, memory ----------------------------------------------------------------------


def measure_linear(report: Report, rounds: int, sizes: Sequence[int]) -> None:
    for name, make in (("thinking", thinking), ("tool call", tool_call)):
        costs = []
        for size in sizes:
            ids, texts = make(size)
            drain(ids[:2000], texts[:2000])
            repeats = max(1, 20_000 // size)
            seconds = median_seconds(
                lambda ids=ids, texts=texts, n=repeats: [drain(ids, texts) for _ in range(n)],
                rounds,
            )
            costs.append(seconds / repeats / len(ids) * 1e6)
            report.line(f"linear: {name}, {size:,} tokens", f"{costs[-1]:.2f} us/token")
        growth = costs[-1] / costs[0]
        report.line(f"linear: {name}, largest over smallest", f"{growth:.2f}x", growth <= FLAT)


def measure_rates(report: Report, rounds: int, size: int) -> None:
    ids, texts = thinking(size)
    for step in (1, 16):
        rate = len(ids) / median_seconds(lambda step=step: drain(ids, texts, step), rounds)
        goal = rate >= TOKENS_PER_SECOND
        report.line(f"rates: ids on text, {step} per feed", f"{rate / 1e3:.0f}k tokens/s", goal)
    text = "".join(texts)
    rate = len(text) / median_seconds(lambda: parse(text), rounds) / 1e6
    report.line("rates: text in one feed", f"{rate:.1f} MB/s", rate >= TEXT_MB_PER_SECOND)
    for name, arguments in (("a string", string_call(size)), ("small objects", object_call(size))):
        rate = len(arguments) / median_seconds(lambda a=arguments: parse(a), rounds) / 1e6
        goal = rate >= CALL_MB_PER_SECOND
        report.line(f"rates: tool call of {name}, one feed", f"{rate:.1f} MB/s", goal)


def string_call(count: int) -> str:
    return "".join(tool_call(count)[1]) + str(Marker.END_MESSAGE)


def object_call(count: int) -> str:
    """A call with an array of small objects, about as long as `count` tokens."""
    items = [{"id": at, "name": f"n{at}", "ok": True} for at in range(count // 10)]
    payload = json.dumps({"name": "write", "args": {"items": items}}, separators=(",", ":"))
    return f"{Marker.CONTENT_INVOKE_TOOL_JSON}{payload}{Marker.END_MESSAGE}"


def measure_memory(report: Report, sizes: Sequence[int]) -> None:
    """What the parser itself allocates while events are sent on and forgotten."""
    for name, make in (("thinking", thinking), ("tool call", tool_call)):
        peaks = []
        for size in sizes:
            ids, texts = make(size)
            tracemalloc.start()
            drain(ids, texts)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        per_token = (peaks[-1] - peaks[0]) / (sizes[-1] - sizes[0])
        value = f"{per_token:.2f} bytes/token, {peaks[-1] / 1024:.0f} KiB at {sizes[-1]:,} tokens"
        report.line(f"memory: stream of a {name}", value, per_token <= BYTES_PER_TOKEN)


# ---- beside vLLM --------------------------------------------------------------------------------


def measure_vllm(report: Report, rounds: int, tokens: int) -> None:
    try:
        import parsers_vllm
    except ImportError as error:
        report.line("vllm", f"left out: {error}")
        return
    ids, texts = tool_call(tokens)
    closing = [VOCABULARY.ids[Marker.END_MESSAGE]]
    pieces = [*texts, str(Marker.END_MESSAGE)]
    served = parsers_vllm.Served(VOCABULARY, [*ids, *closing], pieces)
    expected = arguments_of(stream([*ids, *closing], pieces))
    slow_rounds = min(rounds, 3)
    theirs, their_seconds = served.run("inkling", slow_rounds)
    ours, our_seconds = served.run("inkling_py", rounds)
    alone = median_seconds(lambda: drain([*ids, *closing], pieces), rounds)
    if not (theirs == ours == expected):
        report.line("vllm: all give the same arguments", "no ratio", False)
        return
    name = f"vllm: {tokens:,}-token call"
    value = f"vLLM {served.version} {their_seconds:.3f} s, median of {slow_rounds}"
    report.line(f"{name}, served", value)
    for what, seconds in (("served", our_seconds), ("parser alone", alone)):
        ratio = their_seconds / seconds
        value = f"ours {seconds * 1e3:.1f} ms, {ratio:.0f}x"
        report.line(f"{name}, {what}", value, ratio >= FASTER_THAN_VLLM)


def arguments_of(deltas: Iterator[list[Event]]) -> str:
    return "".join(
        event.text for events in deltas for event in events if isinstance(event, ArgumentsDelta)
    )


# ---- beside tml-renderers -----------------------------------------------------------------------


def measure_tml(report: Report, rounds: int, python: str | None) -> None:
    if python is None:
        report.line("tml", "left out: no --tml-python")
        return
    script = Path(__file__).with_name("parsers_tml.py")
    command = [python, str(script), str(rounds), str(CALL_TOKENS)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        report.line("tml", f"failed: {done.stderr.strip().splitlines()[-1:]}", False)
        return
    for row in json.loads(done.stdout):
        if not row["same"]:
            report.line(f"tml: {row['what']}, same answer", "no ratio", False)
            continue
        times = f"tml {row['tml'] * 1e3:.2f} ms, ours {row['ours'] * 1e3:.2f} ms"
        report.line(f"tml: {row['what']}", f"{times}, {row['tml'] / row['ours']:.2f}x")


def check_answers(report: Report) -> None:
    """The inputs parse to what they say; everything below counts on it."""
    ids, texts = thinking(1_000)
    said = [event for events in stream(ids, texts) for event in events]
    thought = "".join(event.text for event in said if isinstance(event, ReasoningDelta))
    shown = "".join(event.text for event in said if isinstance(event, ContentDelta))
    report.line(
        "parity: thinking and text", "", (thought, shown) == ("".join(words(1_000)), "done")
    )
    ids, texts = tool_call(1_000)
    sent = arguments_of(stream(ids, texts))
    whole = parse("".join(texts)).tool_calls[0].arguments
    report.line("parity: stream, whole and input of a call", "", sent == whole == call_text(1_000))


def call_text(count: int) -> str:
    return '{"text":"' + "".join(words(count)) + '"}'


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="sizes up to 50k tokens")
    parser.add_argument("--tml-python", help="a Python with tml-renderers 0.2.1")
    parser.add_argument("--vllm-tokens", type=int, default=CALL_TOKENS)
    names = ("linear", "rates", "memory", "vllm", "tml")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    sizes = SIZES[:-1] if options.quick else SIZES
    report = Report()
    check_answers(report)
    sections: dict[str, Callable[[], None]] = {
        "linear": lambda: measure_linear(report, options.rounds, sizes),
        "rates": lambda: measure_rates(report, options.rounds, 50_000),
        "memory": lambda: measure_memory(report, sizes),
        "vllm": lambda: measure_vllm(report, options.rounds, options.vllm_tokens),
        "tml": lambda: measure_tml(report, options.rounds, options.tml_python),
    }
    for name in options.only:
        sections[name]()
    return int(report.failed)


if __name__ == "__main__":
    sys.exit(main())
