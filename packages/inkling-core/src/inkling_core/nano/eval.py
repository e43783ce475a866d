"""`inkling eval`: held-out accuracy per task and context length, by the repository's own decoder.

What it is: the judge. A case counts as right when greedy decoding would give exactly its answer,
end markers included. One forward over prompt and answer decides that: decoding is greedy-exact if
and only if at every position of the answer the arg-max is the answer's next token.
What it is not: a server test (`inkling gates`), or the tasks (tasks.py).

Prompts and answers are rendered by inkling_parsers and encoded by the checkpoint's own tokenizer.
Requests are packed and prefilled in chunks: a step holds a piece of several cases, as in a server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from inkling_core.checkpoint import dtype_of, load_decoder
from inkling_core.config import InklingConfig
from inkling_core.embedded import checkpoint_folder
from inkling_core.generate import BLOCK_SIZE, allocate_caches
from inkling_core.generate_text import Text
from inkling_core.model import Decoder
from inkling_core.nano import tasks
from inkling_core.step import NULL_BLOCK, Step
from inkling_parsers.render import plain_encoder, render

if TYPE_CHECKING:
    from inkling_core.cli.settings import EvalSettings

PACKED_TOKENS = 8192
CHUNK = 256  # of a sequence in one step: window layers then read a window, not the whole past
CONTEXTS: dict[str, tuple[int, ...]] = {
    "needle": (512, 1024, 2048, 4096, 8192, 16384),
    "far": (512, 2048),
}
OTHER_CONTEXTS = (256, 2048)
LONG_TOKENS = 2048 * 50  # most prompt tokens of a line without a floor: long contexts cost most
FLOORS = {"sum": 0.98, "sum_thinking": 0.98, "needle_thinking": 0.98, "copy": 0.98, "tool": 0.98}
NEEDLE_FLOOR, NEEDLE_FLOOR_UPTO = 0.99, 2048


@dataclass(frozen=True)
class Score:
    """One line of the table. nats: mean negative log-probability of a whole answer."""

    task: str
    context: int
    cases: int
    right: int
    nats: float
    floor: float | None

    @property
    def share(self) -> float:
        return self.right / self.cases

    @property
    def passed(self) -> bool:
        """False only where a floor is set and missed."""
        return self.floor is None or self.share >= self.floor


@dataclass(frozen=True)
class Exam:
    """A case as token ids: what the model is given and what it must say."""

    case: tasks.Case
    prompt: list[int]
    answer: list[int]


def exam(case: tasks.Case, text: Text) -> Exam:
    """Renders a case; the answer is what the rendered assistant turn adds to the prompt."""
    encode = plain_encoder(lambda part: text.tokenizer.encode(part).ids, text.special)

    def ids(messages: Iterable[dict], generate: bool) -> list[int]:
        rendered = render(messages, case.tools, case.effort, add_generation_prompt=generate)
        return rendered.ids(encode, text.special)

    prompt = ids(case.messages, True)
    whole = ids([*case.messages, case.answer.message()], False)
    if whole[: len(prompt)] != prompt:
        raise RuntimeError(f"{case.task}: the rendered answer does not continue its prompt")
    return Exam(case, prompt, whole[len(prompt) :])


def packs(exams: Sequence[Exam]) -> Iterator[Sequence[Exam]]:
    """Groups of exams with at most PACKED_TOKENS tokens together, one exam at least."""
    begin, size = 0, 0
    for index, one in enumerate(exams):
        length = len(one.prompt) + len(one.answer)
        if size and size + length > PACKED_TOKENS:
            yield exams[begin:index]
            begin, size = index, 0
        size += length
    if begin < len(exams):
        yield exams[begin:]


def judge(decoder: Decoder, group: Sequence[Exam]) -> list[tuple[bool, float]]:
    """For each exam: is greedy decoding exact, and the answer's negative log-probability."""
    sequences = [one.prompt + one.answer[:-1] for one in group]
    results = []
    for one, hidden_TD in zip(group, hidden_states(decoder, sequences), strict=True):
        logits_TV = decoder.logits(hidden_TD[-len(one.answer) :]).float()
        answer_T = torch.tensor(one.answer)
        chosen = logits_TV.log_softmax(-1).gather(1, answer_T[:, None])
        results.append((bool((logits_TV.argmax(-1) == answer_T).all()), -float(chosen.sum())))
    return results


def hidden_states(decoder: Decoder, sequences: Sequence[list[int]]) -> list[Tensor]:
    """Final hidden states [T, D] of each sequence: chunked prefill, all sequences side by side."""
    block_tables: list[range] = []
    used = NULL_BLOCK + 1
    for ids in sequences:
        need = -(-len(ids) // BLOCK_SIZE)
        block_tables.append(range(used, used + need))
        used += need
    caches = allocate_caches(decoder, used - 1)
    parts: list[list[Tensor]] = [[] for _ in sequences]
    for begin in range(0, max(map(len, sequences)), CHUNK):
        live = [q for q, ids in enumerate(sequences) if len(ids) > begin]
        chunks = [sequences[q][begin : begin + CHUNK] for q in live]
        lengths = [len(chunk) for chunk in chunks]
        tables = [block_tables[q] for q in live]
        step = Step.build(lengths, [begin] * len(live), tables, BLOCK_SIZE)
        hidden_TD = decoder(torch.tensor([i for chunk in chunks for i in chunk]), step, caches)
        for q, part in zip(live, hidden_TD.split(lengths), strict=True):
            parts[q].append(part)
    return [torch.cat(one) for one in parts]


def floor_of(task: str, context: int) -> float | None:
    """The accuracy that the shipped model has to reach; None where it is only reported."""
    if task == "needle":
        return NEEDLE_FLOOR if context <= NEEDLE_FLOOR_UPTO else None
    return FLOORS.get(task) if context == OTHER_CONTEXTS[0] else None


def plan(names: Sequence[str], count: int) -> list[tuple[str, int, int]]:
    """(task, context, cases) of each line of the table. Raises ValueError on an unknown task."""
    unknown = [name for name in names if name not in tasks.TASKS]
    if unknown:
        raise ValueError(f"tasks={unknown}: unknown; choose from {', '.join(tasks.TASKS)}")
    lines = []
    for name in names or tasks.TASKS:
        for context in CONTEXTS.get(name, OTHER_CONTEXTS):
            most = count
            if context >= 2048 and floor_of(name, context) is None:
                most = max(1, LONG_TOKENS // context)
            lines.append((name, context, min(count, most)))
    return lines


def evaluate(
    decoder: Decoder,
    text: Text,
    lines: Sequence[tuple[str, int, int]],
    seed: int,
    console: Console | None = None,
) -> list[Score]:
    """Scores held-out cases of each (task, context, cases); shows progress on `console`."""
    scores = []
    total = sum(context * count for _, context, count in lines)
    with Progress(console=console, disable=console is None, transient=True) as progress:
        bar = progress.add_task("scoring", total=total)
        for name, context, count in lines:
            progress.update(bar, description=f"{name} at {context}")
            made = tasks.cases(name, "heldout", count, context, seed)
            exams = [exam(case, text) for case in made]
            results: list[tuple[bool, float]] = []
            for group in packs(exams):
                results += judge(decoder, group)
                progress.advance(bar, context * len(group))
            right = sum(exact for exact, _ in results)
            nats = sum(loss for _, loss in results) / count
            scores.append(Score(name, context, count, right, nats, floor_of(name, context)))
    return scores


def table(scores: Sequence[Score], title: str) -> Table:
    """The scores as a table for the terminal."""
    shown = Table(title=title)
    for column in ("task", "context", "right", "share", "nats an answer", "floor"):
        shown.add_column(column, justify="left" if column == "task" else "right")
    for score in scores:
        floor = "" if score.floor is None else f"{score.floor:.0%}"
        shown.add_row(
            score.task,
            f"{score.context:,}",
            f"{score.right}/{score.cases}",
            f"{score.share:.1%}",
            f"{score.nats:.4f}",
            floor if score.passed else f"{floor} MISSED",
        )
    return shown


def run(settings: EvalSettings) -> int:
    """The command: prints the table, writes the JSON file, returns 1 where a floor is missed."""
    lines = plan(settings.tasks, settings.cases)
    folder = checkpoint_folder(settings.checkpoint)
    dtype = dtype_of(settings.dtype, InklingConfig.from_checkpoint(folder))
    decoder, text = load_decoder(folder, dtype=dtype), Text.from_checkpoint(folder)
    console = Console()
    scores = evaluate(decoder, text, lines, settings.seed, console)
    console.print(table(scores, f"{folder.name}, {dtype}, held-out cases, seed {settings.seed}"))
    if settings.out is not None:
        document = {
            "dtype": str(dtype),
            "seed": settings.seed,
            "scores": [{**asdict(score), "passed": score.passed} for score in scores],
        }
        Path(settings.out).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if all(score.passed for score in scores) else 1
