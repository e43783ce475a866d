"""markers.py: torch bodies against plain formulas, fakes against bodies, the kernel table."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from inkling_core import ops as law
from inkling_hpu import markers


def arguments(name: str, device: str = "cpu"):
    torch.manual_seed(3)
    q, k, v = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    given = {
        "rms_norm": (torch.randn(3, 8), torch.randn(8), 1e-6),
        "moe": (
            torch.randn(3, 8),
            torch.tensor([[0, 2], [1, 3], [3, 0]]),
            torch.rand(3, 2),
            torch.randn(4, 12, 8),
            torch.randn(4, 8, 6),
        ),
        "fsdpa": (q, k, v, torch.randn(2, 4, 3, 5), 0.125),
        "fsdpa_lse": (q, k, v, torch.randn(2, 4, 3, 5), 0.125),
        "mm_f32": (torch.randn(3, 8), torch.randn(5, 8)),
        "all_gather": (torch.randn(3, 8), 4),
        "all_reduce": (torch.randn(3, 8),),
    }[name]
    return [x.to(device) if isinstance(x, torch.Tensor) else x for x in given]


class Names(TorchDispatchMode):
    """Collects the name of every dispatched op."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", markers.NAMES)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_marker_is_one_op(name, device, monkeypatch):
    for collective in ("all_gather", "all_reduce"):
        monkeypatch.setitem(markers.kernels, collective, lambda x, size=1: x.repeat(1, size))
    given = arguments(name, device)
    with Names() as names:
        getattr(markers, name)(*given)
    assert names.seen == [f"inkling_hpu.{name}.default"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", [n for n in markers.NAMES if not n.startswith("all_")])
def test_fakes_have_the_bodies_shapes_and_dtypes(name, dtype):
    def cast(x):
        return x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    real = getattr(markers, name)(*map(cast, arguments(name)))
    fake = getattr(markers, name)(*map(cast, arguments(name, "meta")))
    for one, other in zip(
        real if isinstance(real, tuple) else [real],
        fake if isinstance(fake, tuple) else [fake],
        strict=True,
    ):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert other.device.type == "meta"


def test_fsdpa_is_masked_grouped_attention():
    q, k, v, mask, scale = arguments("fsdpa")
    k4, v4 = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k4, v4, mask, scale=scale)
    torch.testing.assert_close(markers.fsdpa(q, k, v, mask, scale), expected)
    free = torch.nn.functional.scaled_dot_product_attention(q, k4, v4, scale=scale)
    torch.testing.assert_close(markers.fsdpa(q, k, v, None, scale), free)


def test_fsdpa_lse_merges_two_halves_of_the_keys():
    q, k, v, mask, scale = arguments("fsdpa_lse")
    whole, lse = markers.fsdpa_lse(q, k, v, mask, scale)
    halves = [
        markers.fsdpa_lse(q, k[:, :, part], v[:, :, part], mask[..., part], scale)
        for part in (slice(0, 2), slice(2, 5))
    ]
    shares = torch.softmax(torch.stack([part[1] for part in halves]), dim=0)[..., None]
    torch.testing.assert_close(sum(s * h[0] for s, h in zip(shares, halves, strict=True)), whole)
    torch.testing.assert_close(torch.logsumexp(torch.stack([h[1] for h in halves]), 0), lse)


def test_a_query_that_sees_nothing_stays_finite():
    q, k, v, mask, scale = arguments("fsdpa")
    out = markers.fsdpa(q, k, v, torch.full_like(mask, -1e30), scale)
    assert torch.isfinite(out).all()


def test_mm_f32_keeps_the_bits_that_bfloat16_drops():
    x, weight = torch.full((1, 64), 1.0).bfloat16(), torch.full((1, 64), 1.0).bfloat16()
    weight[0, 0] = 2**-7
    assert markers.mm_f32(x, weight).item() == 63 + 2**-7
    assert markers.mm_f32(x, weight).dtype == torch.float32


def test_moe_takes_gate_rows_first():
    x, ids, weights, w13, w2 = arguments("moe")
    interleaved = torch.stack(w13.chunk(2, dim=1), dim=2).flatten(1, 2)
    torch.testing.assert_close(
        markers.moe(x, ids, weights, w13, w2), law.experts(x, ids, weights, interleaved, w2)
    )


def test_a_kernel_in_the_table_runs_in_the_bodys_place(monkeypatch):
    monkeypatch.setitem(markers.kernels, "rms_norm", lambda x, weight, eps: x + eps)
    x = torch.ones(2, 3)
    assert torch.equal(markers.rms_norm(x, torch.ones(3), 0.5), x + 0.5)
    monkeypatch.delitem(markers.kernels, "rms_norm")
    assert not torch.equal(markers.rms_norm(x, torch.ones(3), 0.5), x + 0.5)


@pytest.mark.parametrize("name", ["all_reduce", "all_gather"])
def test_collectives_without_an_engine_say_what_is_missing(name):
    with pytest.raises(RuntimeError, match=rf"{name} of a \(3, 8\).*kernels\['{name}'\]"):
        getattr(markers, name)(*arguments(name))


def test_the_graph_break_is_whatever_the_hook_is_now(monkeypatch):
    calls = []
    monkeypatch.setattr(markers, "graph_break", lambda: calls.append(1))
    markers.end_graph()
    assert calls == [1]
