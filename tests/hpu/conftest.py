"""Tests on vllm-gaudi's real runner: they need it, vLLM, and nothing with a Gaudi in it.

vllm-gaudi is not on the package index. Where it cannot be imported every test here is skipped,
with a reason that says how to get it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # the tests share the modules beside this file
import checkpoints
import judging
import runs

MISSING = [name for name in ("vllm", "vllm_gaudi") if importlib.util.find_spec(name) is None]
REASON = (
    f"REAL RUNNER NOT TESTED: {' and '.join(MISSING)} cannot be imported here. "
    "docs/backends/hpu.md says how to make the environment; then `nox -s hpu`"
)
MAKERS: dict[str, Callable[[Path], Path]] = {
    "llama": lambda folder: checkpoints.stock(folder, "llama"),
    "qwen3": lambda folder: checkpoints.stock(folder, "qwen3"),
    "nano": checkpoints.nano,
    "small": checkpoints.small,
    "deep": lambda folder: checkpoints.small(folder, layers=12),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, loudly."""
    here = Path(__file__).parent
    for item in items:
        if MISSING and here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=REASON))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name -> checkpoint folder, written once."""
    return cache(lambda name: MAKERS[name](tmp_path_factory.mktemp(name) / "checkpoint"))


@pytest.fixture(scope="session")
def reference(model: Callable[[str], Path]) -> Callable[[str], judging.Reference]:
    """Name -> the reference of that checkpoint in float32, loaded once."""

    @cache
    def load(name: str) -> judging.Reference:
        stock = name in ("llama", "qwen3")
        make = judging.of_transformers if stock else judging.of_the_definition
        return make(model(name))

    return load


@pytest.fixture(scope="session")
def dense_bfloat16(model: Callable[[str], Path]) -> Callable[[str], judging.Reference]:
    """Name of an Inkling checkpoint -> the dense decoder in bfloat16: what rounding alone does."""
    return cache(lambda name: judging.of_the_definition(model(name), torch.bfloat16))


@pytest.fixture
def execute(tmp_path: Path) -> Callable[[runs.Run], runs.Outcome]:
    """Runs in this test's own folder, one after the other."""
    count = iter(range(100))
    return lambda run: runs.execute(run, tmp_path / f"run{next(count)}")
