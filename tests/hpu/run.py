"""Runs the tests of this folder, or says loudly why they cannot run here.

    python tests/hpu/run.py [--check] [PYTEST ARGUMENTS]

They need vLLM and vllm_gaudi. vllm-gaudi is not on the package index: either it is installed in
this environment, or INKLING_VLLM_GAUDI names its source tree, which then needs no installation
(its entry points are read out of its setup.py and written beside, outside the tree).

    --check   only say whether they can run: exit status 0, or 3 and the reasons

Not a test and not an environment; docs/backends/hpu.md says how to make one.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = "INKLING_VLLM_GAUDI"
CANNOT = 3


def main(arguments: list[str]) -> int:
    """Check, then run pytest in a process that finds vllm_gaudi."""
    with tempfile.TemporaryDirectory() as folder:
        tree = os.environ.get(TREE)
        paths = staged(Path(tree), Path(folder)) if tree else []
        missing = [*_missing("vllm"), *([] if tree else _missing("vllm_gaudi"))]
        if missing:
            print(f"THE REAL RUNNER IS NOT TESTED HERE: {', '.join(missing)}", file=sys.stderr)
            return CANNOT
        if arguments[:1] == ["--check"]:
            return 0
        inherited = [part for part in [os.environ.get("PYTHONPATH")] if part]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *inherited])}
        command = [sys.executable, "-m", "pytest", *(arguments or [str(HERE)])]
        return subprocess.run(command, env=environ, check=False).returncode


def _missing(name: str) -> list[str]:
    """A reason when `name` cannot be imported here."""
    if importlib.util.find_spec(name) is not None:
        return []
    hint = f" (or set {TREE} to its source tree)" if name == "vllm_gaudi" else ""
    return [f"{sys.executable} cannot import {name}{hint}"]


def staged(tree: Path, folder: Path) -> list[str]:
    """Directories for PYTHONPATH that make an uninstalled tree a distribution with entry points.

    Raises FileNotFoundError or ValueError where `tree` is no source tree of vllm-gaudi.
    """
    information = folder / "vllm_gaudi-0.0.0+tree.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: vllm_gaudi\nVersion: 0.0.0+tree\n"
    )
    groups = entry_points((tree / "setup.py").read_text())
    lines = [
        line
        for group, points in groups.items()
        if group.startswith("vllm.")  # its pytest plug-in is for its own tests
        for line in (f"[{group}]", *points, "")
    ]
    (information / "entry_points.txt").write_text("\n".join(lines))
    return [str(folder), str(tree)]


def entry_points(setup: str) -> Mapping[str, list[str]]:
    """The `entry_points` argument in the text of a setup.py. ValueError: there is none."""
    for node in ast.walk(ast.parse(setup)):
        if isinstance(node, ast.keyword) and node.arg == "entry_points":
            return ast.literal_eval(node.value)
    raise ValueError("setup.py has no entry_points: not a source tree of vllm-gaudi")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
