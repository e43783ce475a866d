"""The Triton ops against the shipped float64 bundle: every op, both dtypes, and the tiny model."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="needs triton, which the kernels are written in")

from parity_cases import DEVICE

from inkling_core.parity import bundle
from inkling_core.parity.check import compared
from inkling_cuda_ref import parity
from inkling_cuda_ref.parity import runner

SHIPPED = Path(__file__).parents[2] / "inkling-core" / "tests" / "data" / "parity_small"
GIVEN = bundle.read(SHIPPED)


@pytest.mark.parametrize("case", GIVEN.cases, ids=lambda case: case.id)
def test_the_shipped_bundle(case):
    asked = runner(None if DEVICE.type == "cpu" else DEVICE)
    rows = compared(asked, case, GIVEN.answers[case.id])
    assert rows and not any(row.absent for row in rows)
    over = [f"{r.result}: {r.max_abs:.2e} at {r.worst}" for r in rows if not r.passed]
    assert not over


def test_a_host_without_gpu_and_interpreter_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(parity, "INTERPRETED", False)
    with pytest.raises(ValueError, match="device=cuda, or TRITON_INTERPRET=1"):
        runner(None)
    assert runner(torch.device("cuda")).name == "cuda_ref"
