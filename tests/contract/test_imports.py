"""What an import pulls in: help and configuration need no torch, the parsers need nothing at
all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = Path(__file__).resolve().parents[2] / "packages"
SOURCES = os.pathsep.join(str(path) for path in sorted(PACKAGES.glob("*/src")))
HEAVY = {"torch", "vllm", "transformers", "numpy", "triton"}

LIGHT = [
    "inkling_core",
    "inkling_core.config",
    "inkling_core.serving.settings",
    "inkling_core.serving.plugin",
    "inkling_core.cli.main",
    "inkling_core.cli.compose",
    "inkling_core.cli.pages",
    "inkling_core.cli.settings",
    "inkling_core.embedded",
    "inkling_hpu",
    "inkling_hpu.commands",
    "inkling_hpu.buckets.settings",
    "inkling_hpu.counter.settings",
    "inkling_cuda_ref",
    "inkling_parsers",
]


def imported_by(module: str) -> set[str]:
    """Top-level modules that `import module` loads beyond what a bare interpreter has."""
    code = (
        "import sys; before = set(sys.modules); "
        f"import {module}; "
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": SOURCES},
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", LIGHT)
def test_a_light_import_stays_light(module):
    assert not imported_by(module) & HEAVY


def test_the_parsers_need_the_standard_library_only():
    foreign = imported_by("inkling_parsers") - set(sys.stdlib_module_names)
    assert foreign == {"inkling_parsers"}
