"""What the long-prefill share buys: streams and short requests beside a long prompt, on and off.

    python benchmarks/long_prefill.py [--backend cpu|hpu_emulated] [--context 8192] [--rounds 3]

One run starts the embedded model twice, with the share at its default and with null, and measures
each with `inkling_core.gates.long_prefill`: eight streams before, during and after the prefill of a
prompt near the end of the context, three short requests meanwhile. Ratios only, each of two figures
of the same server seconds apart. Nothing is printed as a result unless both servers gave equal
answers, and equal tokens in every stream as far as both went.

Not a statement about other machines or models: what a chunk costs decides how deep streams fall
without the share. With it they keep 1 / (1 + share) by construction.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys

from running_server import running

from inkling_core.gates.client import Client
from inkling_core.gates.long_checks import KEPT, Lengths, beside
from inkling_core.gates.long_prefill import SHORTS, Figures, measure
from inkling_core.gates.verdict import Target
from inkling_core.serving.settings import ServeSettings

SHARE = 0.5


def measured(options: argparse.Namespace, share: float | None) -> list[Figures]:
    """All rounds of one server. The first, in which the processor warms up, is thrown away."""
    settings = ServeSettings(
        port=options.port,
        backend=options.backend,
        max_model_len=options.context,
        kv_cache_mib=options.kv_cache_mib,
        long_prefill_share=share,
    )
    with running(settings):
        client = Client(f"http://127.0.0.1:{options.port}", timeout=600)
        target = Target(client, None, is_nano=True, chunk=settings.max_num_batched_tokens)
        lengths = Lengths.of(target)
        # the same for both servers; new in each round, so that no prefix is cached
        draws = [random.Random(f"bench/{i}") for i in range(options.rounds + 1)]
        rounds = [measure(target, *beside(target, lengths, draw)) for draw in draws]
    for figures in rounds[1:]:
        waits = ", ".join(f"{wait:.2f}" for wait in figures.waits)
        print(
            f"share {share}: kept {figures.kept:.2f}; long {figures.seconds:.1f} s, short {waits}"
        )
    return rounds[1:]


def check_parity(on: list[Figures], off: list[Figures]) -> None:
    """SystemExit where an answer or a stream's token differs."""
    compared = 0
    for one, other in zip(on, off, strict=True):
        if [a.text for a in one.answers] != [a.text for a in other.answers]:
            raise SystemExit("PARITY FAILED: an answer differs; no ratio is reported")
        for ids, theirs in zip(one.streams, other.streams, strict=True):
            shared = min(len(ids), len(theirs))
            compared += shared
            if ids[:shared] != theirs[:shared]:
                raise SystemExit("PARITY FAILED: a stream's tokens differ; no ratio is reported")
    print(f"parity: {len(on) * (1 + SHORTS)} answers and {compared} tokens of streams are equal")


def main() -> None:
    """See the module docstring. Exit status 1 where streams keep less than the gate demands."""
    parser = argparse.ArgumentParser(description="the long-prefill share, on and off")
    parser.add_argument("--backend", default="cpu", choices=["cpu", "hpu_emulated"])
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--kv-cache-mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=8121)
    options = parser.parse_args()
    on, off = measured(options, SHARE), measured(options, None)
    check_parity(on, off)
    print(f"medians of {options.rounds}, {options.backend}, {options.context} tokens:")
    for name, rounds in (("share 0.5", on), ("no share", off)):
        kept = statistics.median(figures.kept for figures in rounds)
        wait = statistics.median(figures.worst_wait for figures in rounds)
        print(
            f"  {name}: streams keep {kept:.2f}; a short request waits {wait:.2f} of the long one"
        )
    sys.exit(statistics.median(figures.kept for figures in on) < KEPT)


if __name__ == "__main__":
    main()
