"""switches.py: variables there and back, and what is refused; what `single_reduce` does."""

from __future__ import annotations

import pytest
import torch

from inkling_core.parallel import TensorParallel
from inkling_hpu import markers
from inkling_hpu.parallel import collectives
from inkling_hpu.switches import MASK_LIMIT, VARIABLES, Switches

NUMBERS = ("mask_bytes", "warmup_step_seconds")


def test_defaults_where_nothing_is_set():
    assert Switches.from_environment({}) == Switches()
    assert Switches().local_window_prefill and Switches().single_reduce and Switches().step_hoist


@pytest.mark.parametrize("name", VARIABLES)
def test_variables_there_and_back(name):
    changed = Switches(**{name: 12345 if name in NUMBERS else False})
    assert changed != Switches()
    assert Switches.from_environment(changed.environment()) == changed
    only = {VARIABLES[name]: changed.environment()[VARIABLES[name]]}
    assert Switches.from_environment(only) == changed


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("INKLING_STEP_HOIST", "yes", "INKLING_STEP_HOIST is 'yes', must be 0 or 1"),
        ("INKLING_MASK_BYTES", "1e6", "must be a whole number"),
        ("INKLING_MASK_BYTES", "0", f"must be in 1..{MASK_LIMIT}"),
        ("INKLING_MASK_BYTES", str(2**31), f"must be in 1..{MASK_LIMIT}"),
    ],
)
def test_other_values_are_refused(variable, text, message):
    with pytest.raises(ValueError, match=message):
        Switches.from_environment({variable: text})


@pytest.mark.parametrize("single", [True, False])
def test_one_reduce_or_two(single, monkeypatch):
    reduced = []
    monkeypatch.setitem(markers.kernels, "all_reduce", lambda x: (reduced.append(x), 2 * x)[1])
    tp = collectives(1, 2, Switches(single_reduce=single))
    total = tp.reduce_sum(torch.ones(3), 10 * torch.ones(3))
    assert total.tolist() == [22, 22, 22]
    assert len(reduced) == (1 if single else 2)


def test_one_rank_reduces_nothing(monkeypatch):
    monkeypatch.setitem(markers.kernels, "all_reduce", lambda x: 2 * x)
    tp = collectives(0, 1)
    assert isinstance(tp, TensorParallel) and tp.size == 1
    assert tp.all_reduce(torch.ones(1)).item() == 1


def test_the_gather_knows_the_number_of_ranks(monkeypatch):
    monkeypatch.setitem(markers.kernels, "all_gather", lambda x, size: x.repeat(1, size))
    assert collectives(0, 4).all_gather(torch.ones(2, 3)).shape == (2, 12)
