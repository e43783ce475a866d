"""serving/cpu with vLLM's kernels loaded: the same results as the law, and plain torch elsewhere.

Needs the serving environment; which instruction set runs depends on the machine and is printed.
"""

from __future__ import annotations

import pytest
import torch

from inkling_core import ops
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance
from inkling_core.serving import cpu
from inkling_core.serving.cpu import kernels

pytest.importorskip("vllm", reason="vLLM's CPU kernels need the serving environment")
BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def loaded(monkeypatch):
    """Kernels for this test only; other tests of the process keep plain torch."""
    monkeypatch.setattr(kernels, "_kernels", None)
    monkeypatch.setattr(kernels, "_isa", None)
    print(kernels.load())


def weights(experts, hidden, width, dtype=BF16):
    generator = torch.Generator().manual_seed(experts * hidden + width)
    w13_ECD = torch.randn(experts, 2 * width, hidden, generator=generator) / hidden**0.5
    w2_EDI = torch.randn(experts, hidden, width, generator=generator) / width**0.5
    return w13_ECD.to(dtype), w2_EDI.to(dtype)


def needs_fused(hidden, width):
    if kernels.fused_experts(BF16, hidden, width) is None:
        pytest.skip("this processor has neither AMX nor AVX-512: plain torch runs here")


@pytest.mark.parametrize(("hidden", "width"), [(64, 32), (512, 256)], ids=["D64", "D512"])
@pytest.mark.parametrize("tokens", [1, 3, 63, 129])
def test_fused_experts_equal_the_law(tokens, hidden, width):
    needs_fused(hidden, width)
    w13_ECD, w2_EDI = weights(8, hidden, width)
    x_TD = torch.randn(tokens, hidden).to(BF16)
    ids_TK = torch.rand(tokens, 8).argsort(-1)[:, :3]
    weights_TK = torch.rand(tokens, 3).to(BF16)
    packed = cpu.pack_experts(w13_ECD, w2_EDI)
    assert [p.dim() for p in packed] == [2, 2]
    expected = ops.experts(
        x_TD.float(), ids_TK, weights_TK.float(), w13_ECD.float(), w2_EDI.float()
    )
    actual = cpu.experts(x_TD, ids_TK, weights_TK, *packed)
    assert actual.dtype == BF16
    assert_within(actual, expected, tolerance("experts", BF16, "cpu"), "experts")


@pytest.mark.parametrize("tokens", [1, 3, 63, 129])
@pytest.mark.parametrize("shared", [1, 2])
def test_fused_shared_experts_equal_the_law(tokens, shared):
    needs_fused(64, 32)
    w13_SCD, w2_SDI = weights(shared, 64, 32)
    x_TD, gamma_TS = torch.randn(tokens, 64).to(BF16), torch.rand(tokens, shared).to(BF16)
    expected = ops.shared_experts(x_TD.float(), gamma_TS.float(), w13_SCD.float(), w2_SDI.float())
    actual = cpu.shared_experts(x_TD, gamma_TS, *cpu.pack_experts(w13_SCD, w2_SDI))
    assert_within(actual, expected, tolerance("shared_experts", BF16, "cpu"), "shared experts")


@pytest.mark.parametrize(
    ("hidden", "width", "dtype"),
    [(64, 32, torch.float32), (48, 32, BF16), (64, 20, BF16)],
    ids=["f32", "D48", "I20"],
)
def test_what_the_kernel_cannot_take_stays_as_published(hidden, width, dtype):
    published = weights(4, hidden, width, dtype)
    packed = cpu.pack_experts(*published)
    assert packed[0] is published[0] and packed[1] is published[1]
    x_TD, ids_TK = torch.randn(5, hidden).to(dtype), torch.rand(5, 4).argsort(-1)[:, :2]
    weights_TK = torch.rand(5, 2).to(dtype)
    expected = ops.experts(x_TD, ids_TK, weights_TK, *published)
    actual = cpu.experts(x_TD, ids_TK, weights_TK, *packed)
    assert_within(actual, expected, tolerance("experts", dtype, "cpu"), "experts")


@pytest.mark.parametrize("dtype", [torch.float32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("shape", [(1, 64), (3, 5, 63), (129, 16), (5, 8, 64)], ids=str)
@pytest.mark.parametrize("weighted", [True, False], ids=["weight", "bare"])
def test_norm_rounds_before_it_weighs(shape, dtype, weighted):
    x = (torch.randn(shape) * 3).to(dtype)
    weight = (1 + 0.2 * torch.randn(shape[-1])).to(dtype) if weighted else None
    actual, expected = cpu.rms_norm(x, weight, 1e-6), ops.rms_norm(x, weight, 1e-6)
    # Bit for bit: float32 runs on torch, and in bf16 the rounding hides the summation order.
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
