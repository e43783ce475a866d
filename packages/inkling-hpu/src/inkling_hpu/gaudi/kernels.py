"""Puts the Gaudi kernels and the engine's collectives behind the marker ops.

    rms_norm                FusedRMSNorm.apply
    moe                     torch.ops.hpu.mixture_of_experts, the kernel alone: no reduce is in it
    fsdpa                   FusedSDPA.apply, the mask holding causality, window and padding
    fsdpa_lse               torch.ops.hpu.sdpa_recomp_fwd, which also returns row maximum and sum
    all_reduce, all_gather  vLLM's tensor-parallel collectives
    decode.kernel           paged attention of vllm-gaudi, with a bias per block
    end_graph               mark_step

`mm_f32` keeps its torch body: no vllm-gaudi code calls such a kernel the way it would have to be
called, so nothing says that it works.

What it is not: the markers (inkling_hpu.markers), whose arguments these take, or a proof: the
kernels' own rounding was never seen here (docs/backends/hpu.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inkling_core.ops import rms_norm as law_rms_norm
from inkling_hpu import markers


def bind() -> None:
    """Fill `markers.kernels` and the graph break. Needs vllm_gaudi; idempotent."""
    # vllm_gaudi and its bridge come with a Gaudi image: no type checker sees them
    import habana_frameworks.torch as htorch  # type: ignore[import-not-found]
    from vllm.distributed import (
        tensor_model_parallel_all_gather,
        tensor_model_parallel_all_reduce,
    )
    from vllm_gaudi.extension.kernels import fsdpa, rms_norm  # type: ignore[import-not-found]
    from vllm_gaudi.extension.runtime import get_config  # type: ignore[import-not-found]

    softmax = "fp32" if get_config().fp32_softmax else "fast"
    markers.kernels.update(
        rms_norm=_RmsNorm(rms_norm()),
        moe=mixture_of_experts,
        fsdpa=_FusedSdpa(fsdpa(), softmax),
        fsdpa_lse=_SdpaWithSums(softmax),
        all_reduce=tensor_model_parallel_all_reduce,
        all_gather=lambda x, size: tensor_model_parallel_all_gather(x),
    )
    markers.graph_break = htorch.core.mark_step


def bind_paged_attention(impl: Any) -> None:
    """Let decode attention run through `impl`, an InklingAttentionImpl of any of the layers: they
    differ in nothing that it reads."""
    from inkling_hpu import decode

    decode.kernel = impl.decode


class _RmsNorm:
    """`[..., D]`; the fused kernel takes three dimensions and a weight."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __call__(self, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        if weight is None or self.kernel is None:
            return law_rms_norm(x, weight, eps)
        rows = x.reshape(1, -1, x.shape[-1])
        return self.kernel.apply(rows, weight.to(x.dtype), eps).view(x.shape)


class _FusedSdpa:
    """Arguments of the marker in the order of the bridge; the mask never meets is_causal."""

    def __init__(self, kernel: Any, softmax: str) -> None:
        self.kernel, self.softmax = kernel, softmax

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
    ) -> Tensor:
        recompute, padding = True, "right"
        return self.kernel.apply(
            q, k, v, mask, 0.0, False, scale, self.softmax, recompute, None, padding
        )


class _SdpaWithSums:
    """The kernel behind FusedSDPA in its form for training, called as vllm-gaudi calls it for
    attention in slices: it returns out, row maximum m and inverse row sum 1 / l.

        lse = m - log(1 / l)

    In "fast" mode 1 / l carries a constant factor, which adds the same number to every lse and so
    cancels where parts are merged, if all calls have one mode (`merge_check`).
    """

    def __init__(self, softmax: str) -> None:
        self.softmax = softmax

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        # comes with a Gaudi image, and only this kernel needs it: a bridge without these names
        # is found out by the self-check, not at start
        from habana_frameworks.torch.hpex.kernels.FusedSDPA import (  # type: ignore[import-not-found]
            gqa_input_reshape_fwd,
            gqa_output_reshape,
            is_gqa,
        )

        grouped = is_gqa(q, k)
        if grouped:
            q, k, v, mask = gqa_input_reshape_fwd(q, k, v, mask)
        causal, backward, padding = False, True, "right"  # sums come with the backward pass only
        found = torch.ops.hpu.sdpa_recomp_fwd(
            q, k, v, mask, 0.0, scale, causal, backward, self.softmax, None, padding
        )
        out, top, inverse = (gqa_output_reshape(x) if grouped else x for x in found[:3])
        return out, (top.float() - inverse.float().log()).squeeze(-1)


def mixture_of_experts(
    x_TD: Tensor,
    ids_TK: Tensor,
    weights_TK: Tensor,
    w13_ECD: Tensor,
    w2_EDI: Tensor,
    more_w13_SCD: Tensor | None = None,
    more_w2_SDI: Tensor | None = None,
) -> Tensor:
    """The expert kernel over the experts of this rank, all of them: `[T, D]`, nothing reduced."""
    w13 = markers.every_expert(w13_ECD, more_w13_SCD)
    return torch.ops.hpu.mixture_of_experts(
        hidden_states=x_TD,
        expert_routing_table=ids_TK,
        router_weights=weights_TK,
        w12=w13,
        w3=markers.every_expert(w2_EDI, more_w2_SDI),
        permuted_weights=True,
        activation="silu",
        experts_min=0,
        experts_max=len(w13) - 1,
    )
