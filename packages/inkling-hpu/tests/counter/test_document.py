"""docs/backends/hpu-op-count.md: its figures are what the command prints.

To write them anew, beside counted_figures.py:  PYTHONPATH=. python counter/test_document.py
"""

import contextlib
import io
import json
from pathlib import Path

from counted_figures import COUNTED, table

from inkling_core.cli.main import main

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "backends" / "hpu-op-count.md"
ASKED = ["bench", "ops", "backend=hpu", "model=inkling_small", "tp=8", "format=json"]
SIZES = ((1, 8192), (16, 8192), (1, 262_144), (16, 262_144))  # streams, context


def run(*words):
    """The JSON that `inkling bench ops` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert main([*ASKED, *words]) == 0
    return json.loads(out.getvalue())


def figures():
    """The part of the document between its two comments."""
    document = run()
    columns = document["columns"]
    long = [run(f"streams={s}", f"context={c}", "compare=false") for s, c in SIZES]
    assert {(it["ops"], it["all_reduces"]) for it in long} == {
        (document["ops"], document["all_reduces"])
    }

    def row(label, read):
        return [label, *(read(column) for column in columns.values())]

    def layer(kind):
        def read(column):
            cell = column["layer_kinds"][kind]
            layers = cell["layers"] or 1
            return f"{cell['ops'] / layers:g} + {cell['all_reduces'] / layers:g}"

        return read

    totals = [row(label, lambda c, n=n: f"{c[n]:,}") for label, n in TOTALS.items()]
    layers = {kind: cell["layers"] for kind, cell in document["layer_kinds"].items()}
    kinds = [row(f"{k} ({n} layers)" if n else k, layer(k)) for k, n in layers.items()]
    parts = [
        row(part, lambda c, part=part: f"{c['parts'][part]['ops']:,}")
        for part in columns["off"]["parts"]
    ]
    sizes = [f"{streams} x {context:,}" for streams, context in SIZES]
    gigabytes = [f"{it['bytes'] / 1e9:.2f}" for it in long]
    return "\n\n".join(
        [
            table(["one decode step", *columns], totals),
            table(["ops + all-reduces of one layer", *columns], kinds),
            table(["ops by part", *columns], parts),
            table(["streams x context", *sizes], [["GB, all switches on", *gigabytes]]),
        ]
    )


TOTALS = {"ops": "ops", "all-reduces": "all_reduces", "views": "views"}


def test_the_figures_are_what_the_command_prints():
    shown = COUNTED.search(DOCUMENT.read_text())
    assert shown is not None
    assert shown.group(0) == f"{shown.group(1)}{figures()}\n{shown.group(2)}", __doc__


if __name__ == "__main__":
    found = COUNTED.sub(lambda it: f"{it.group(1)}{figures()}\n{it.group(2)}", DOCUMENT.read_text())
    DOCUMENT.write_text(found)
