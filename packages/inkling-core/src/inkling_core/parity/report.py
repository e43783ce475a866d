"""`inkling parity report`: results of checks as one Markdown page and one plot.

Not a comparison. The plot shows each op's worst difference as a share of its limit, on a
logarithmic axis, one bar for each back end; it is an SVG written here, so that it needs no library.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from inkling_core.parity.check import Row, cells, worst_of_ops

if TYPE_CHECKING:
    from inkling_core.parity.settings import ParityReportSettings

COLUMNS = ("op", "dtype", "results", "max abs", "rms ratio", "worst", "of limit", "")
COLOURS = ("#3b6ea5", "#c8553d", "#588157", "#8d6a9f")
DECADES = 6  # the axis runs from a millionth of a limit to the limit
BAR, LABEL, AXIS = 12, 190, 480


@dataclass(frozen=True)
class Checked:
    """Results of one check."""

    title: str
    backend: str
    rows: tuple[Row, ...]

    @property
    def failed(self) -> int:
        return sum(not row.passed for row in self.rows)


def run(settings: ParityReportSettings) -> int:
    """The command: writes `report.md` and `report.svg`; 1 where a result is over its limit."""
    checks = [read(Path(path)) for path in settings.results]
    folder = Path(settings.out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.svg").write_text(plot(checks), encoding="utf-8")
    (folder / "report.md").write_text(markdown(checks), encoding="utf-8")
    Console().print(f"{folder}/report.md, {folder}/report.svg: {len(checks)} checks")
    return int(any(one.failed for one in checks))


def read(path: Path) -> Checked:
    """Raises ValueError where the file is not one that `parity check` wrote."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or "rows" not in document:
        raise ValueError(
            f"{path}: no rows in it; `inkling parity check out=FILE` writes such files"
        )
    rows = tuple(Row(**{**row, "worst": tuple(row["worst"])}) for row in document["rows"])
    return Checked(document["title"], document["backend"], rows)


def markdown(checks: Sequence[Checked]) -> str:
    """One section per check: the worst result of each op."""
    lines = ["# Parity", "", "![worst difference of each op as a share of its limit](report.svg)"]
    for one in checks:
        verdict = "all within their limits" if not one.failed else f"{one.failed} over the limit"
        done = sum(not row.absent for row in one.rows)
        lines += ["", f"## {one.title}", "", f"{done} results, {verdict}.", ""]
        lines += ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
        for row, count in worst_of_ops(one.rows):
            lines.append("| " + " | ".join(cells(row, count)) + " |")
    return "\n".join(lines) + "\n"


def plot(checks: Sequence[Checked]) -> str:
    """SVG: a group of bars for each op and dtype, a line where the limit is."""
    shares = [{(r.op, r.dtype): r for r, _ in worst_of_ops(one.rows)} for one in checks]
    groups = list(dict.fromkeys(key for one in shares for key in one))
    height = (len(checks) * BAR + 8) * len(groups) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + AXIS + 40}" height="{height}" '
        'font-family="sans-serif" font-size="11">'
    ]
    for n, one in enumerate(checks):
        parts.append(_text(LABEL + 150 * n, 14, one.backend, COLOURS[n % len(COLOURS)]))
    y = 28
    for key in groups:
        parts.append(_text(4, y + 10, " ".join(key)))
        for n, one in enumerate(shares):
            row = one.get(key)
            if row is not None and not row.absent:
                parts.append(_bar(y + n * BAR, row, COLOURS[n % len(COLOURS)]))
        y += len(checks) * BAR + 8
    for decade in range(DECADES + 1):
        x = LABEL + AXIS * decade // DECADES
        colour = "#d00" if decade == DECADES else "#ddd"
        parts.append(f'<line x1="{x}" x2="{x}" y1="22" y2="{y}" stroke="{colour}"/>')
        parts.append(
            _text(x - 12, y + 14, "limit" if decade == DECADES else f"1e{decade - DECADES}")
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(y: int, row: Row, colour: str) -> str:
    length = 1 + math.log10(max(row.share, 10.0**-DECADES)) / DECADES
    width = round(AXIS * min(max(length, 0.004), 1.06))
    return f'<rect x="{LABEL}" y="{y}" width="{width}" height="{BAR - 2}" fill="{colour}"/>'


def _text(x: int, y: int, text: str, colour: str = "#222") -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}">{escape(text)}</text>'
