"""The layer that vLLM sees: it asks for pages, receives them, and gives the decoder its views.

What it is: one `AttentionLayerBase` per decoder layer, all with the same spec, so vLLM keeps one
block table. What it is not: attention (inkling_core ops) or the byte layout (pages.py).
"""

from __future__ import annotations

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.v1.attention.backend import AttentionBackend
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec

from inkling_core.serving.metadata import InklingBackend
from inkling_core.serving.pages import PageLayout, PageViews, cut_pages


class InklingCacheLayer(nn.Module, AttentionLayerBase):
    """Pages of one decoder layer.

    prefix: vLLM's name for the layer; holds exactly one integer, the layer index.
    kv_heads: heads of this layer on this rank (the page may have room for more).
    """

    def __init__(
        self, vllm_config: VllmConfig, prefix: str, layout: PageLayout, kv_heads: int
    ) -> None:
        super().__init__()
        self.prefix = prefix
        self.layout = layout
        self.kv_heads = kv_heads
        self.kv_cache = torch.empty(0)
        self.views: PageViews | None = None
        layers = vllm_config.compilation_config.static_forward_context
        if prefix in layers:
            raise ValueError(f"vLLM already holds a layer named {prefix}: two models share a name")
        layers[prefix] = self

    def get_attn_backend(self) -> type[AttentionBackend]:
        """See `AttentionLayerBase`."""
        return InklingBackend

    def get_kv_cache_spec(self, vllm_config: VllmConfig) -> KVCacheSpec:
        """Full-attention pages for every layer, padded by the conv row.

        Local layers could drop blocks behind their window; they keep them, because conv rows are
        keyed by the block id and a prefix hit needs the row of the block it ends in.
        """
        return FullAttentionSpec(
            block_size=self.layout.block_size,
            num_kv_heads=self.layout.kv_heads,
            head_size=self.layout.head_dim,
            dtype=self.layout.kv_dtype,
            page_size_padded=self.layout.page_bytes,
        )

    def bind_kv_cache(self, kv_cache: torch.Tensor) -> None:
        """Takes vLLM's view of the pages and cuts ours from the same storage."""
        self.kv_cache = kv_cache
        self.views = cut_pages(kv_cache, self.layout, self.kv_heads)
