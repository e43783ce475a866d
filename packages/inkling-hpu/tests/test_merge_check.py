"""merge_check.py: what a device may do to row sums, what it must not, and what happens then."""

from __future__ import annotations

import logging
import math
import re
import sys
from types import ModuleType

import pytest
import torch

from inkling_hpu import markers, merge_check
from inkling_hpu.emulation import sdpa
from inkling_hpu.gaudi.kernels import _SdpaWithSums
from inkling_hpu.merge_check import ERROR, SPREAD, calibrate, checked
from inkling_hpu.switches import Switches

CPU = torch.device("cpu")
PROBE = (4, 1, 128, torch.bfloat16, CPU)
FSDPA = "habana_frameworks.torch.hpex.kernels.FusedSDPA"


@pytest.fixture
def emulated(monkeypatch):
    """The kernel's call as a Gaudi gets it, on the emulated op."""
    sdpa.register()
    names = FSDPA.split(".")
    for count in range(1, len(names)):
        monkeypatch.setitem(sys.modules, ".".join(names[:count]), ModuleType(names[count - 1]))
    monkeypatch.setitem(sys.modules, FSDPA, sdpa)
    monkeypatch.setitem(markers.kernels, "fsdpa_lse", _SdpaWithSums("fast"))
    return monkeypatch


@pytest.mark.parametrize("shape", [(4, 1, 128), (4, 2, 16), (4, 4, 16)], ids=str)
@pytest.mark.parametrize("factor", ["1", "128", "0.25"])
def test_a_factor_on_all_sums_is_measured_and_passes(emulated, factor, shape):
    emulated.setenv("INKLING_EMULATED_SUM_FACTOR", factor)
    found = calibrate(*shape, torch.bfloat16, CPU)
    assert found.problem is None
    assert found.factor == pytest.approx(float(factor), rel=1e-4)
    assert found.spread < SPREAD / 100 and 0 < found.error < ERROR / 10
    assert checked(Switches(), *PROBE) == Switches()


def test_the_other_softmax_has_no_factor(emulated):
    emulated.setitem(markers.kernels, "fsdpa_lse", _SdpaWithSums("fp32"))
    assert calibrate(*PROBE).factor == pytest.approx(1, rel=1e-4)


def only(masked, change):
    """A device that changes the log-sum-exp, or the result, of some calls."""
    body = markers.torch_body("fsdpa_lse")

    def kernel(q, k, v, mask, scale):
        out, lse = body(q, k, v, mask, scale)
        return change(out, lse) if (mask is not None) == masked else (out, lse)

    return kernel


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda out, lse: (out, lse + math.log(128)), "differ by 4.85 nats"),
        (lambda out, lse: (out, lse + math.log(2)), "differ by 0.69 nats"),
        (lambda out, lse: (out, lse + math.nan), "differ by nan nats"),
        (lambda out, lse: (out * 1.2, lse), "merged attention is off by 0."),
        (lambda out, lse: (out * math.nan, lse), "merged attention is off by nan"),
    ],
    ids=["128", "2", "nan-sums", "out", "nan-out"],
)
def test_sums_of_one_kind_of_call_that_differ_switch_the_split_off(
    monkeypatch, caplog, masked, change, said
):
    monkeypatch.setitem(markers.kernels, "fsdpa_lse", only(masked, change))
    with caplog.at_level(logging.WARNING):
        assert checked(Switches(mask_bytes=9), *PROBE) == Switches(mask_bytes=9, near_far=False)
    assert re.search(r"the whole context \(INKLING_NEAR_FAR=0\)", caplog.text)
    assert said in caplog.text


def test_a_kernel_that_is_not_there_switches_the_split_off(monkeypatch, caplog):
    def absent(*_):
        raise AttributeError("'_OpNamespace' 'hpu' object has no attribute 'sdpa_recomp_fwd'")

    monkeypatch.setitem(markers.kernels, "fsdpa_lse", absent)
    with caplog.at_level(logging.WARNING):
        assert not checked(Switches(), *PROBE).near_far
    assert "AttributeError" in caplog.text and "sdpa_recomp_fwd" in caplog.text


def test_nothing_is_asked_where_the_split_is_off(monkeypatch):
    monkeypatch.setattr(merge_check, "calibrate", lambda *_: pytest.fail("asked"))
    assert checked(Switches(near_far=False), *PROBE) == Switches(near_far=False)
