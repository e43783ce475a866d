"""vLLM's `Attention` modules for our layers, with a back end and implementation of our own.

What it is: what makes vLLM and vllm-gaudi allot pages: one module per layer in the forward
context, from which the runner reads the page's shape and to which it binds keys and values.

    keys, values   each flat [(num_blocks + 1) * block_size, G, H]; the last block is the pad block

What it is not: the decoder's attention layer. Its ops compute prefill themselves and hand decode
to `InklingAttentionImpl.decode`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers.attention.attention import Attention

from inkling_hpu.decode import DecodeIndex
from inkling_hpu.gaudi.imports import (
    HPUAttentionBackendV1,
    HPUAttentionImpl,
    HPUPagedAttention,
)


class InklingAttentionImpl(HPUAttentionImpl):
    """HPUAttentionImpl that is given a bias per key block, and is called by our decoder."""

    def decode(
        self,
        q_BNH: Tensor,
        keys_PLGH: Tensor,
        values_PLGH: Tensor,
        index: DecodeIndex,
        bias_PNL: Tensor,
    ) -> Tensor:
        """See `inkling_hpu.decode.paged_attention`: same arguments, same result.

        The bias carries every mask, so the mask per block that vllm-gaudi adds is zero.
        """
        size = bias_PNL.shape[-1]
        out = HPUPagedAttention.forward_decode(
            query=q_BNH.flatten(1)[:, None],
            **_list_arguments(index, size, q_BNH.dtype),
            position_bias=bias_PNL,
            **self.common_attention_args(
                index.blocks_P, keys_PLGH.flatten(0, 1), values_PLGH.flatten(0, 1), size
            ),
        )
        return out.view(q_BNH.shape)

    def forward(self, *_: Any, **__: Any) -> Tensor:
        """Never called: the decoder calls its own ops."""
        raise AssertionError("Inkling's attention runs inside its decoder")


@lru_cache(maxsize=2)  # of the newest step: one for local and one for global layers
def _list_arguments(index: DecodeIndex, size: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """What paged attention wants to know of a block list; every layer of a kind asks."""
    groups_P, num_rows = index.groups_P, index.member_BP.shape[0]
    return {
        "block_mapping": index.member_BP.T.to(dtype),
        "block_bias": torch.zeros(len(groups_P), size, dtype=dtype, device=groups_P.device),
        "block_groups": torch.where(groups_P < 0, num_rows, groups_P),
    }


class InklingAttentionBackend(HPUAttentionBackendV1):
    """Names our implementation to vLLM."""

    @staticmethod
    def get_impl_cls() -> type[InklingAttentionImpl]:
        return InklingAttentionImpl


def attention_module(
    vllm_config: Any, prefix: str, num_heads: int, kv_heads: int, head_dim: int
) -> Attention:
    """The module of one layer; vLLM finds it in the forward context under `prefix`."""
    return Attention(
        num_heads,
        head_dim,
        scale=1.0 / head_dim,
        num_kv_heads=kv_heads,
        cache_config=vllm_config.cache_config,
        prefix=prefix,
        attn_backend=InklingAttentionBackend,
    )
