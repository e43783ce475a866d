"""docs/backends/hpu-prefill-masks.md: its figures are what the command prints.

To write them anew, beside counted_figures.py:  PYTHONPATH=. python counter/test_masks_document.py
"""

import contextlib
import io
import json
from pathlib import Path

from counted_figures import COUNTED, table

from inkling_hpu.counter.masks_command import MIB, run
from inkling_hpu.counter.settings import BenchMasksSettings

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "backends" / "hpu-prefill-masks.md"


def figures():
    """The part of the document between its two comments."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(BenchMasksSettings(format="json")) == 0
    columns = json.loads(out.getvalue())["columns"]
    rows = [
        [
            name,
            f"{one['context']:,}",
            f"{one['mask_bytes'] / 1e9:.2f}",
            f"{one['largest_mask'] / MIB:.1f}",
            f"{one['calls']:,}",
            f"{one['ops']:,}",
            f"{one['moved'] / 1e9:.2f}",
        ]
        for name, counts in columns.items()
        for one in counts
    ]
    headings = ["masks", "context", "GB", "largest, MiB", "calls", "ops", "GB moved"]
    return table(headings, rows)


def test_the_figures_are_what_the_command_prints():
    shown = COUNTED.search(DOCUMENT.read_text())
    assert shown is not None
    assert shown.group(0) == f"{shown.group(1)}{figures()}\n{shown.group(2)}", __doc__


if __name__ == "__main__":
    made = figures()
    text = COUNTED.sub(lambda it: f"{it.group(1)}{made}\n{it.group(2)}", DOCUMENT.read_text())
    DOCUMENT.write_text(text)
