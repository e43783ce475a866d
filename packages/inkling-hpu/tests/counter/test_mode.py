"""mode.py, rule.py and body.py: what counts as one op, what as none, and what is opened up."""

import pytest
import torch
import torch.nn.functional as F

from inkling_hpu import markers
from inkling_hpu.counter.body import UncountableOp
from inkling_hpu.counter.mode import OpCounter
from inkling_hpu.counter.rule import ALL_REDUCE, MARKERS

DEVICES = ("cpu", "meta")
RULE = "counts by the rule of docs/backends/hpu-op-count.md"


def count(run, *args):
    """Sums of what `run(*args)` asks for."""
    with OpCounter() as counter:
        run(*args)
    return counter.tally.total()


def ones(*shape, dtype=torch.float32, device="cpu"):
    return torch.ones(*shape, dtype=dtype, device=device)


VIEWS = {
    "view": lambda x: x.view(12),
    "reshape": lambda x: x.reshape(2, 6),
    "flatten": lambda x: x.flatten(),
    "transpose": lambda x: x.transpose(0, 1),
    "t": lambda x: x.t(),
    "slice": lambda x: x[1:],
    "select": lambda x: x[1],
    "expand": lambda x: x.expand(5, 3, 4),
    "unsqueeze": lambda x: x[None],
    "squeeze": lambda x: x.squeeze(0),
    "permute": lambda x: x.permute(1, 0),
    "detach": lambda x: x.detach(),
    "split": lambda x: x.split(2, dim=1),
    "split-sizes": lambda x: x.split([1, 3], dim=1),
    "chunk": lambda x: x.chunk(2, dim=1),
    "unbind": lambda x: x.unbind(),
    "as-strided": lambda x: x.as_strided((2,), (1,)),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "empty-like": lambda x: torch.empty_like(x),
    "new-empty": lambda x: x.new_empty(3),
    "same-dtype": lambda x: x.to(torch.float32),
}
OPS = {  # name -> (run, ops)
    "cast": (lambda x: x.bfloat16(), 1),
    "copy": (lambda x: x.clone(), 1),
    "copying-reshape": (lambda x: x.t().reshape(12), 1),
    "contiguous": (lambda x: x.t().contiguous(), 1),
    "in-place": (lambda x: x.add_(1), 1),
    "fill": (lambda x: x.zero_(), 1),
    "zeros": (lambda x: torch.zeros_like(x), 1),
    "arange": (lambda x: torch.arange(3, device=x.device), 1),
    "slice-assignment": (lambda x: x[:1].copy_(x[1:2]), 1),
    "gather": (lambda x: x.index_select(0, torch.arange(2, device=x.device)), 2),
    "linear": (lambda x: F.linear(x, torch.empty(7, 4, device=x.device)), 1),
    "matmul-3d": (lambda x: x[None].expand(2, 3, 4) @ torch.empty(2, 4, 5, device=x.device), 1),
    "where-and-mask": (lambda x: torch.where(x > 0, x, 0.0), 3),  # the 0.0 becomes a tensor
    "softmax-in-another-dtype": (lambda x: F.softmax(x.t(), dim=-1, dtype=torch.float64), 2),
    "silu-and-mul": (lambda x: F.silu(x[:, :2]) * x[:, 2:], 2),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("inference", [True, False], ids=["inference", "autograd"])
def test_a_view_or_an_empty_tensor_is_no_op(name, device, inference):
    x = ones(3, 4, device=device)
    with torch.inference_mode(inference):
        assert count(VIEWS[name], x).ops == 0, RULE


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("inference", [True, False], ids=["inference", "autograd"])
def test_everything_else_counts_below_composite_ops(name, device, inference):
    """Inference mode hands composite ops to a dispatch mode whole; they have to be opened up."""
    run, ops = OPS[name]
    with torch.inference_mode(inference):
        assert count(run, ones(3, 4, device=device)).ops == ops, RULE


def test_views_have_a_column_of_their_own():
    sums = count(lambda x: x[1:].t().exp(), ones(3, 4))
    assert (sums.ops, sums.views) == (1, 2)


# ---- marker ops ----------------------------------------------------------------------------------


def arguments(name, device="meta"):
    """Arguments of a marker op, small."""
    x_TD = ones(3, 8, device=device)
    q, kv = ones(2, 4, 1, 8, device=device), ones(2, 2, 5, 8, device=device)
    ids_TK = torch.zeros(3, 2, dtype=torch.int64, device=device)
    experts = ones(4, 6, 8, device=device), ones(4, 8, 3, device=device)
    return {
        "rms_norm": (x_TD, ones(8, device=device), 1e-6),
        "moe": (x_TD, ids_TK, ones(3, 2, device=device), *experts),
        "fsdpa": (q, kv, kv, None, 0.1),
        "fsdpa_lse": (q, kv, kv, None, 0.1),
        "mm_f32": (x_TD, ones(4, 8, device=device)),
        "all_gather": (x_TD, 8),
        "all_reduce": (x_TD,),
    }[name]


def test_the_rule_names_the_markers_that_there_are():
    assert {f"inkling_hpu::{name}" for name in markers.NAMES} == {*MARKERS, ALL_REDUCE}


@pytest.mark.parametrize("name", markers.NAMES)
def test_a_marker_is_one_op_on_the_meta_device(name):
    sums = count(getattr(markers, name), *arguments(name))
    assert (sums.ops, sums.all_reduces) == ((0, 1) if name == "all_reduce" else (1, 0))


@pytest.mark.parametrize("name", ["rms_norm", "moe", "fsdpa", "fsdpa_lse", "mm_f32"])
def test_a_marker_is_one_op_where_its_torch_body_runs(name):
    assert count(getattr(markers, name), *arguments(name, "cpu")).ops == 1


def test_the_torch_bodies_of_markers_would_be_more_than_one_op():
    """Else the two tests above could not fail."""
    assert count(markers._BODIES["rms_norm"], *arguments("rms_norm", "cpu")).ops > 1
    assert count(markers._BODIES["fsdpa"], *arguments("fsdpa", "cpu")).ops > 1


# ---- custom ops ----------------------------------------------------------------------------------


def three(x):
    return (x * 2 + 1).exp()


@torch.library.custom_op("inkling_test::hides_three", mutates_args=())
def hides_three(x: torch.Tensor) -> torch.Tensor:
    return three(x)


@hides_three.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.fixture(scope="module")
def library():
    """Custom ops registered the other way, under names that could be taken for markers."""
    made = torch.library.Library("inkling_hpu", "FRAGMENT")
    other = torch.library.Library("inkling_test", "FRAGMENT")
    for owner, name, key in (
        (made, "fused_layer", "CPU"),
        (made, "fused_step", "CompositeExplicitAutograd"),
        (made, "fused_all", "CompositeImplicitAutograd"),
        (made, "rms_norm.unweighted", "CPU"),
        (other, "rms_norm", "CPU"),
    ):
        owner.define(f"{name}(Tensor x) -> Tensor")
        owner.impl(name, three, key)
        if key != "CompositeImplicitAutograd":
            owner.impl(name, torch.empty_like, "Meta")
    other.define("compiled(Tensor x) -> Tensor")
    other.impl("compiled", torch.empty_like, "Meta")
    yield
    made._destroy()
    other._destroy()


HIDING = (
    "inkling_test::hides_three",
    "inkling_hpu::fused_layer",
    "inkling_hpu::fused_step",
    "inkling_hpu::fused_all",
    "inkling_hpu::rms_norm.unweighted",
    "inkling_test::rms_norm",
)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", HIDING)
def test_a_custom_op_that_hides_three_ops_counts_three(name, device, library):
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    op = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    with torch.inference_mode():
        assert count(op, ones(3, 4, device=device)).ops == 3


def test_a_custom_op_inside_a_custom_op_is_opened_too():
    @torch.library.custom_op("inkling_test::hides_more", mutates_args=())
    def hides_more(x: torch.Tensor) -> torch.Tensor:
        return markers.rms_norm(torch.ops.inkling_test.hides_three(x), None, 1e-6)

    hides_more.register_fake(torch.empty_like)
    assert count(hides_more, ones(3, 4, device="meta")).ops == 4


def test_a_custom_op_without_a_python_body_is_refused(library):
    with pytest.raises(UncountableOp, match=r"inkling_test::compiled has no body in Python"):
        count(torch.ops.inkling_test.compiled, ones(3, 4, device="meta"))
