"""Negative controls: faults put into a copy of the shipped code, so that a run has to go wrong.

What it is: edits (file, text that occurs exactly once, replacement) of inkling_hpu, and the making
of a source folder with one of them applied. Child processes find that folder before the installed
package (`Run.sources`), in every rank.

What it is not: a mock. Everything else is the shipped code and vllm-gaudi's.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import inkling_hpu

PACKAGE = Path(inkling_hpu.__file__).parent


@dataclass(frozen=True)
class Fault:
    """One edit of a file below inkling_hpu."""

    file: str
    pattern: str
    replacement: str


FAULTS = {
    "bias-dropped": Fault("bias.py", "torch.cat([rel, tail", "torch.cat([rel * 0, tail"),
    "bias-off-by-one": Fault(
        "bias.py", "distance.clamp(0, extent)", "(distance + 1).clamp(0, extent)"
    ),
    "local-bias-dropped": Fault(
        "local_decode.py", "rel_BNR[..., :window]", "rel_BNR[..., :window] * 0"
    ),
    "local-bias-off-by-one": Fault("local_decode.py", "column_K).clamp(", "column_K + 1).clamp("),
    "prefill-bias-dropped": Fault("skew.py", ":extent].flip(-1)", ":extent].flip(-1) * 0"),
    "far-keys-forgotten": Fault("prefill.py", "if keys.far_QF.shape[1] and", "if False and"),
    # every chunk but the first starts from the zero row
    "conv-row-zeroed-at-a-chunk-edge": Fault(
        "builders.py", "        if context:\n", "        if context and row_length == 1:\n"
    ),
    "window-list-one-block-short": Fault(
        "builders.py",
        "max(0, context - window + 1) // block_size\n",
        "max(0, context - window + 1) // block_size + (context >= window)\n",
    ),
    # padding writes the row of the first block that is handed out
    "wrong-row-for-padding": Fault(
        "builders.py",
        "store_QR = torch.full((num_rows, touched), pad_block",
        "store_QR = torch.full((num_rows, touched), 1",
    ),
    "second-all-reduce": Fault(
        "parallel.py",
        "TensorParallel(rank, size, markers.all_reduce,",
        "TensorParallel(rank, size, lambda x: markers.all_reduce(markers.all_reduce(x)),",
    ),
}


def sources_with(fault: Fault, folder: Path) -> Path:
    """A folder that holds inkling_hpu with the fault in it.

    Raises ValueError where the text to replace does not occur exactly once.
    """
    shutil.copytree(
        PACKAGE,
        folder / "inkling_hpu",
        ignore=shutil.ignore_patterns("__pycache__"),
        symlinks=False,
    )
    path = folder / "inkling_hpu" / fault.file
    text = path.read_text()
    if text.count(fault.pattern) != 1:
        raise ValueError(f"{fault.pattern!r} occurs {text.count(fault.pattern)} times in {path}")
    path.write_text(text.replace(fault.pattern, fault.replacement))
    return folder
