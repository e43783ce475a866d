"""`inkling parity dump` and `check`: answers into a bundle, and answers against one.

Not the cases, the calls or the limits. A check compares each named result of each case, keeps the
worst of an op, and passes where no limit of `tolerances` is crossed; ids have the limit 0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from inkling_core.parity import bundle
from inkling_core.parity.calls import Answers, Runner, runner
from inkling_core.parity.cases import OpCase, cases
from inkling_core.parity.compare import difference
from inkling_core.parity.float64 import Float64Runner
from inkling_core.parity.tolerances import Tolerance, tolerance

if TYPE_CHECKING:
    from inkling_core.parity.settings import ParityCheckSettings, ParityDumpSettings

EXACT = Tolerance(max_abs=0.0)
WIDTH = 120


@dataclass(frozen=True)
class Row:
    """One result of one case beside the bundle's. worst: index of the largest difference.

    absent: the back end leaves this op to the reference, nothing was compared.
    """

    case: str
    op: str
    dtype: str
    result: str
    max_abs: float = 0.0
    rms_ratio: float = 0.0
    worst: tuple[int, ...] = ()
    limit_abs: float | None = None
    limit_rms: float | None = None
    absent: bool = False

    @property
    def share(self) -> float:
        """The larger of the two differences in limits: above 1 the row fails."""
        pairs = ((self.max_abs, self.limit_abs), (self.rms_ratio, self.limit_rms))
        return max((_of_limit(value, limit) for value, limit in pairs), default=0.0)

    @property
    def passed(self) -> bool:
        return self.absent or self.share <= 1


def _of_limit(value: float, limit: float | None) -> float:
    if limit is None:
        return 0.0
    return value / limit if limit else (0.0 if value == 0 else float("inf"))


def device_of(name: str) -> torch.device | None:
    """The device called `name`; `auto` is a GPU where torch sees one, the cpu elsewhere."""
    if name == "auto":
        return torch.device("cuda") if torch.cuda.is_available() else None
    return torch.device(name)


def dump(settings: ParityDumpSettings) -> int:
    """The command: answers of one back end to a set of cases."""
    exact = settings.backend == Float64Runner.name
    device = None if exact else device_of(settings.device)
    asked: Runner = Float64Runner() if exact else runner(settings.backend, device)
    kept: list[OpCase] = []
    answers: dict[str, Answers] = {}
    for case in cases(settings.cases, settings.ops, settings.seed):
        found = asked.answer(case)
        if found is not None:
            kept.append(case)
            answers[case.id] = found
    bundle.write(Path(settings.out), kept, answers, asked.name, bundle.device_name(device))
    Console().print(f"{settings.out}: {len(kept)} cases by {asked.name}")
    return 0


def check(settings: ParityCheckSettings) -> int:
    """The command: 1 where a limit is crossed or nothing was compared."""
    given = bundle.read(Path(settings.bundle))
    device = device_of(settings.device)
    asked = runner(settings.backend, device)
    rows = [row for case in given.cases for row in compared(asked, case, given.answers[case.id])]
    where = bundle.device_name(device)
    title = f"{asked.name} on {where} against {given.source}"
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)  # a log has no width of its own
    console.print(table(rows, title))
    if settings.out is not None:
        document = {"title": title, "backend": asked.name, "device": where, "source": given.source}
        _write_json(Path(settings.out), {**document, "rows": [asdict(row) for row in rows]})
    failed = sum(not row.passed for row in rows)
    done = sum(not row.absent for row in rows)
    console.print(f"{done} results compared, {failed} over their limit")
    return int(failed > 0 or done == 0)


def compared(asked: Runner, case: OpCase, expected: dict[str, Tensor] | Any) -> list[Row]:
    """One row per named result of a case."""
    dtype = str(case.dtype).removeprefix("torch.")
    found = asked.answer(case)
    if found is None:
        return [Row(case.id, case.op, dtype, "-", absent=True)]
    rows = []
    for name, wanted in expected.items():
        integral = not wanted.is_floating_point()
        limit = EXACT if integral else tolerance(case.op, case.dtype, asked.name)
        seen = difference(found[name], wanted)
        rows.append(
            Row(case.id, case.op, dtype, name, seen.max_abs, seen.rms_ratio, seen.worst, *limit)
        )
    return rows


def worst_of_ops(rows: Sequence[Row]) -> list[tuple[Row, int]]:
    """The row nearest to its limit of each op and dtype, and how many there were."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.op, row.dtype), []).append(row)
    return [(max(group, key=lambda row: row.share), len(group)) for group in groups.values()]


def table(rows: Sequence[Row], title: str) -> Table:
    """The worst result of each op for the terminal."""
    shown = Table(title=title)
    for column in ("op", "dtype", "results", "max abs", "rms ratio", "worst", "of limit", ""):
        shown.add_column(column, justify="left" if column in ("op", "dtype") else "right")
    for row, count in worst_of_ops(rows):
        shown.add_row(*cells(row, count))
    return shown


def cells(row: Row, count: int) -> tuple[str, ...]:
    """A line of the table, also of the Markdown report."""
    if row.absent:
        return row.op, row.dtype, "0", "-", "-", "-", "-", "the reference's op"
    place = f"{row.result}{list(row.worst)}"
    figures = (f"{row.max_abs:.2e}", f"{row.rms_ratio:.2e}", place, f"{row.share:.3f}")
    return row.op, row.dtype, str(count), *figures, "ok" if row.passed else "OVER"


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
