"""vLLM's attention metadata, translated once per step to the neutral `Step`.

What it is: the backend and builder classes that vLLM asks every cache layer for. The builder runs
once per step and its result is shared by all layers, since they are one cache group.

What it is not: an attention implementation. Attention runs inside the decoder, so `get_impl_cls`
has nothing to hand out.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from vllm.config import VllmConfig
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionMetadata,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
)
from vllm.v1.kv_cache_interface import AttentionSpec
from vllm.v1.kv_cache_layout import KVCacheLayout

from inkling_core.step import Step


@dataclass
class InklingMetadata(AttentionMetadata):
    """The step that vLLM scheduled."""

    step: Step


class InklingMetadataBuilder(AttentionMetadataBuilder[InklingMetadata]):
    """Builds the `Step` of a scheduled batch."""

    def __init__(
        self,
        kv_cache_spec: AttentionSpec,
        layer_names: list[str],
        vllm_config: VllmConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.block_size = kv_cache_spec.block_size

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> InklingMetadata:
        """See `AttentionMetadataBuilder.build`; prefix sharing needs nothing here."""
        return InklingMetadata(to_step(common_attn_metadata, self.block_size))


class InklingBackend(AttentionBackend):
    """Names our builder to vLLM; any page layout with whole pages serves."""

    @staticmethod
    def get_name() -> str:
        return "INKLING"

    @staticmethod
    def get_impl_cls():
        raise NotImplementedError("Inkling's attention runs inside its decoder, not as an impl")

    @staticmethod
    def get_builder_cls() -> type[InklingMetadataBuilder]:
        return InklingMetadataBuilder

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        return (KVCacheLayout.LBNHC, KVCacheLayout.LBHNC)


def to_step(common: CommonAttentionMetadata, block_size: int) -> Step:
    """Translate one batch.

    Requests that got no token in this step (padding rows of captured batches) are left out.
    """
    starts = common.query_start_loc_cpu.tolist()
    lengths = [b - a for a, b in pairwise(starts)]
    totals = common.seq_lens.tolist()
    rows = [q for q, length in enumerate(lengths) if length > 0]
    positions = common.positions
    if positions is None:
        raise ValueError("vLLM built attention metadata without positions; Step needs them")
    table_QM = common.block_table_tensor[: len(lengths)]
    if len(rows) != len(lengths):
        table_QM = table_QM[rows]
    return Step(
        positions_T=positions[: starts[-1]].long(),
        starts=(0, *(starts[q + 1] for q in rows)),
        contexts=tuple(totals[q] - lengths[q] for q in rows),
        block_table_QM=table_QM.long(),
        block_size=block_size,
    )
