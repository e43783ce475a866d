"""The back-end protocol: replacement, refusal with a reason, the kill switch."""

import logging

import pytest
import torch

from inkling_core import ops
from inkling_core.backend import (
    DISABLE_VARIABLE,
    OP_NAMES,
    REFERENCE,
    YES,
    Backend,
    OpContext,
    no,
)
from inkling_core.config import PRESETS

# ops of the law that run when weights are read: no decoder calls them, no back end binds them
BLOCK_FORMATS = {
    f"{verb}_{name}" for verb in ("quantize", "dequantize") for name in ("mxfp8", "nvfp4")
}


@pytest.fixture
def context() -> OpContext:
    return OpContext(PRESETS["inkling_small"], torch.float32, torch.device("cpu"))


def double_norm(x, weight, eps):
    return 2 * ops.rms_norm(x, weight, eps)


def test_reference_binds_every_op_of_the_law(context):
    bound = REFERENCE.bind(context)
    assert all(getattr(bound, name) is getattr(ops, name) for name in OP_NAMES)
    functions = {n for n in ops.__all__ if callable(getattr(ops, n)) and n != "QkvrWeights"}
    assert functions - set(OP_NAMES) == BLOCK_FORMATS
    assert set(OP_NAMES) <= functions


def test_an_op_is_replaced_and_the_rest_stays(context):
    bound = Backend("mine", {"rms_norm": double_norm}).bind(context)
    assert bound.rms_norm is double_norm and bound.router is ops.router


def test_a_refusal_says_why_and_falls_back(context, caplog):
    backend = Backend(
        "mine",
        {"rms_norm": double_norm},
        {"rms_norm": lambda c: no("float64 only") if c.dtype != torch.float64 else YES},
    )
    with caplog.at_level(logging.WARNING):
        bound = backend.bind(context)
    assert bound.rms_norm is ops.rms_norm
    assert str(backend.verdict("rms_norm", context)) == "no, because float64 only"
    assert "float64 only" in caplog.text
    assert str(backend.verdict("router", context)).startswith("no, because back end 'mine'")


def test_the_switch_disables_every_back_end(context, monkeypatch):
    monkeypatch.setenv(DISABLE_VARIABLE, "1")
    assert Backend("mine", {"rms_norm": double_norm}).bind(context).rms_norm is ops.rms_norm


def test_a_joined_step_is_op_after_op_where_nobody_offers_it_whole(context):
    """By the bound ops, a replaced one among them."""
    bound = Backend("mine", {"rms_norm": double_norm}).bind(context)
    draw = torch.Generator().manual_seed(0)
    stream, delta, norm = (torch.randn(*n, generator=draw) for n in ((5, 8), (5, 8), (8,)))
    history, taps = torch.randn(1, 3, 8, generator=draw), torch.randn(8, 4, generator=draw)
    after, normed = bound.conv_add_norm(stream, delta, history, taps, (0, 5), norm, 1e-6)
    assert torch.equal(after, stream + ops.short_conv(delta, history, taps, (0, 5)))
    assert torch.equal(normed, double_norm(after, norm, 1e-6))


@pytest.mark.parametrize("refused", [True, False])
def test_a_joined_step_is_taken_whole_where_all_its_ops_are(context, refused):
    given = {"rms_norm": double_norm, "short_conv": lambda *_: None}
    answer = no("it is Monday") if refused else YES
    joined = {"conv_add_norm": lambda *_: None}
    mine = Backend("mine", given, {"short_conv": lambda c: answer}, joined)
    taken = mine.bind(context).conv_add_norm is joined["conv_add_norm"]
    assert taken == (not refused)


def test_unknown_joined_steps_are_refused():
    with pytest.raises(ValueError, match=r"unknown joined steps \['conv_norm_add'\]"):
        Backend("mine", joined={"conv_norm_add": double_norm})


def test_unknown_ops_and_orphan_verifiers_are_refused():
    with pytest.raises(ValueError, match="rms_nrom"):
        Backend("mine", {"rms_nrom": double_norm})
    with pytest.raises(ValueError, match="without an op"):
        Backend("mine", {}, {"rms_norm": lambda c: YES})
    with pytest.raises(ValueError, match="needs a reason"):
        no("")
