"""The Gaudi ops against the float64 bundle that ships with the core: the parity runner's steps."""

from pathlib import Path

import pytest

from inkling_core.parity import bundle
from inkling_core.parity.check import compared
from inkling_hpu.parity import HpuRunner

SHIPPED = Path(__file__).parents[2] / "inkling-core" / "tests" / "data" / "parity_small"
GIVEN = bundle.read(SHIPPED)


@pytest.mark.parametrize("case", GIVEN.cases, ids=lambda case: case.id)
def test_the_shipped_bundle(case):
    rows = compared(HpuRunner(), case, GIVEN.answers[case.id])
    assert rows and not any(row.absent for row in rows)
    over = [f"{r.result}: {r.max_abs:.2e} at {r.worst}" for r in rows if not r.passed]
    assert not over
