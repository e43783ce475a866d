"""What the shipped weights say when the model is computed wrongly on purpose.

`python -m inkling_core.nano.faults out=FILE.json [checkpoint=DIR] [cases=16]`

What it is: evidence for the serving gates. Each fault is one realistic mistake put into the
decoder, its caches or its block tables; the table shows, for each task, how many held-out answers
stay greedy-exact and what the right answers cost in nats.
What it is not: the mutation suite of the source (tests/mutations), which edits shipped code.

A case is prefilled in chunks of `CHUNK` tokens, which are deliberately no multiple of a block, and
its last chunk starts where the question does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from inkling_core.checkpoint import load_decoder
from inkling_core.conv_state.layout import Stream
from inkling_core.conv_state.protocol import ConvPlan, ConvStore
from inkling_core.embedded import checkpoint_folder
from inkling_core.generate import BLOCK_SIZE, allocate_caches
from inkling_core.generate_text import Text
from inkling_core.layers.context import Caches
from inkling_core.model import Decoder
from inkling_core.nano import tasks
from inkling_core.nano.eval import Exam, exam
from inkling_core.step import NULL_BLOCK, Step

CHUNK = 100
TASKS = ("needle", "list", "copy", "sum", "tool_thinking", "near", "far")
CONTEXTS = (512, 2048)


class ForgetfulStore:
    """A conv store whose histories come back as zeros: what a chunk edge without state does."""

    def __init__(self, store: ConvStore) -> None:
        self.store = store

    def plan(self, step: Step) -> ConvPlan:
        return self.store.plan(step)

    def exchange(self, layer: int, stream: Stream, x_TC: Tensor, plan: ConvPlan) -> Tensor:
        return torch.zeros_like(self.store.exchange(layer, stream, x_TC, plan))


@dataclass(frozen=True)
class Fault:
    """One mistake. `spoil` changes a freshly loaded decoder; `forget` says from which step on conv
    histories are lost; `borrow` puts another request's blocks into the table at the question."""

    name: str
    spoil: Callable[[Decoder], None] = lambda decoder: None
    forget: str = "never"  # never, always, question
    borrow: str = "none"  # none, all, needle


def drop_tau(decoder: Decoder) -> None:
    decoder.config = decoder.config.replace(log_scaling_n_floor=None)


def _each_bias(decoder: Decoder, change: Callable[[Tensor], Tensor]) -> None:
    for block in decoder.layers:
        bank = block.attn.rel_logits_proj.proj
        bank.copy_(change(bank))


def drop_bias(decoder: Decoder) -> None:
    _each_bias(decoder, torch.zeros_like)


def shift_bias(by: int) -> Callable[[Decoder], None]:
    """Distance d gets the bias of distance d - by."""
    return lambda decoder: _each_bias(decoder, lambda bank: bank.roll(by, dims=-1))


def resize_window(by: int) -> Callable[[Decoder], None]:
    """Window layers see `by` keys more, or fewer where it is negative."""

    def spoil(decoder: Decoder) -> None:
        for block in decoder.layers:
            if block.attn.window is not None:
                block.attn.window += by

    return spoil


def confuse_extents(decoder: Decoder) -> None:
    """Global layers use the window's extent."""
    for block in decoder.layers:
        if block.attn.window is None:
            block.attn.rel_logits_proj.proj[:, decoder.config.sliding_window :] = 0


def keep_padded_rows(decoder: Decoder) -> None:
    decoder.config = decoder.config.replace(unpadded_vocab_size=decoder.config.vocab_size)


FAULTS = (
    Fault("none"),
    Fault("tau dropped", drop_tau),
    Fault("bias dropped", drop_bias),
    Fault("bias off by +1", shift_bias(1)),
    Fault("bias off by -1", shift_bias(-1)),
    Fault("window 1 token short", resize_window(-1)),
    Fault("window 16 tokens short", resize_window(-16)),
    Fault("window 1 block of 128 long", resize_window(128)),
    Fault("global extent taken from the window", confuse_extents),
    Fault("padded vocabulary kept", keep_padded_rows),
    Fault("conv state zeroed at every chunk", forget="always"),
    Fault("conv state zeroed at the question", forget="question"),
    Fault("needle's block from another request", borrow="needle"),
    Fault("all blocks from another request", borrow="all"),
)


def question_start(one: Exam) -> int:
    """Position where the question begins: after the context, which is what a cache would hold."""
    return max(1, len(one.prompt) - 24)


def table_of(fault: Fault, mine: list[int], other: list[int], one: Exam) -> list[int]:
    """The block table from the question on."""
    whole = question_start(one) // BLOCK_SIZE  # blocks that the context fills
    if fault.borrow == "all":
        return other[:whole] + mine[whole:]
    if fault.borrow == "needle" and one.case.depth is not None:
        place = min(int(one.case.depth * whole), whole - 1)
        return [other[i] if i == place else block for i, block in enumerate(mine)]
    return mine


def feed(decoder: Decoder, caches: Caches, ids: list[int], begin: int, table: list[int]) -> Tensor:
    """One chunk; returns its hidden states [T, D]."""
    step = Step.single(len(ids), begin, table, BLOCK_SIZE)
    return decoder(torch.tensor(ids), step, caches)


def spoiled(decoder: Decoder, fault: Fault, one: Exam, other: Exam) -> tuple[bool, float]:
    """Greedy exactness and nats of one exam under a fault; `other` is the foreign request."""
    ids = one.prompt + one.answer[:-1]
    need = -(-max(len(ids), len(other.prompt)) // BLOCK_SIZE)
    mine = list(range(NULL_BLOCK + 1, NULL_BLOCK + 1 + need))
    foreign = [block + need for block in mine]
    caches = allocate_caches(decoder, 2 * need)
    if fault.borrow != "none":
        feed(decoder, caches, other.prompt, 0, foreign)
    lossy = Caches(caches.kv, ForgetfulStore(caches.conv))
    start, parts = question_start(one), []
    for begin in (*range(0, start, CHUNK), start):
        asking = begin == start
        end = len(ids) if asking else min(begin + CHUNK, start)
        lost = fault.forget == "always" or (fault.forget == "question" and asking)
        table = table_of(fault, mine, foreign, one) if asking else mine
        chunk = ids[begin:end]
        parts.append(feed(decoder, lossy if lost else caches, chunk, begin, table))
    hidden_TD = torch.cat(parts)[-len(one.answer) :]
    logits_TV = decoder.logits(hidden_TD)
    answer_T = torch.tensor(one.answer)
    chosen = logits_TV.log_softmax(-1).gather(1, answer_T[:, None])
    return bool((logits_TV.argmax(-1) == answer_T).all()), -float(chosen.sum())


@dataclass(frozen=True)
class Cell:
    """One entry of the table: `right` of `cases` exact, mean `nats` of the right answer."""

    fault: str
    task: str
    context: int
    cases: int
    right: int
    nats: float


def measure(folder: Path, count: int, console: Console) -> list[Cell]:
    """Every fault on every task and context; `count` cases at 512, a quarter of them beyond."""
    text = Text.from_checkpoint(folder)
    cells = []
    for context in CONTEXTS:
        number = count if context <= 512 else max(2, count // 4)
        exams = {
            task: [exam(case, text) for case in tasks.cases(task, "heldout", number, context, 7)]
            for task in TASKS
        }
        for fault in FAULTS:
            decoder = load_decoder(folder)
            with torch.inference_mode():
                fault.spoil(decoder)
            for task, group in exams.items():
                pairs = zip(group, group[1:] + group[:1], strict=True)
                results = [spoiled(decoder, fault, one, other) for one, other in pairs]
                right, nats = sum(r for r, _ in results), sum(n for _, n in results) / number
                cells.append(Cell(fault.name, task, context, number, right, nats))
            console.print(f"{context} {fault.name}: done")
    return cells


def table(cells: Sequence[Cell], context: int) -> Table:
    """Faults down, tasks across: share right [nats]."""
    shown = Table("fault", *TASKS, title=f"{context} tokens")
    for fault in FAULTS:
        row = [c for c in cells if (c.fault, c.context) == (fault.name, context)]
        shown.add_row(fault.name, *(f"{c.right}/{c.cases} [{c.nats:.2f}]" for c in row))
    return shown


def main(arguments: Sequence[str]) -> None:
    """Command line: out=FILE [checkpoint=DIR] [cases=N]."""
    given = dict(pair.split("=", 1) for pair in arguments)
    if "out" not in given or set(given) - {"out", "checkpoint", "cases"}:
        raise SystemExit("usage: out=FILE.json [checkpoint=DIR] [cases=16]")
    console = Console(width=160)
    folder = checkpoint_folder(given.get("checkpoint"))
    cells = measure(folder, int(given.get("cases", 16)), console)
    for context in CONTEXTS:
        console.print(table(cells, context))
    lines = [json.dumps(vars(cell)) for cell in cells]
    Path(given["out"]).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
