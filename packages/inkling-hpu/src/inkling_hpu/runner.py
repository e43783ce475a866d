"""vllm-gaudi's model runner with Inkling's pages, conv rows and step tensors.

What it is: overrides of HPUModelRunner, each of which calls it first.

    get_kv_cache_spec          a page is padded by the bytes of its conv row
    initialize_kv_cache        conv rows beside the cache, bound to the model; a pool that cannot
                               hold one request is refused
    _form_prefill_batch        } the tensors of an HpuStep in the buckets that vllm-gaudi chose
    _create_decode_input_data  }

and the mended faults of upstream_fixes.py, and the watched warm-up of warmup.py. All of it runs on
the host, before a graph.

What it is not: a scheduler, a bucket policy or a sampler (vllm-gaudi's), or the tensors' arithmetic
(builders.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from inkling_hpu import carriers
from inkling_hpu.builders import FarBlocks, build_decode, build_prefill, reach_of
from inkling_hpu.gaudi.imports import HPUModelRunner
from inkling_hpu.refusals import RefusedError, pool_reason
from inkling_hpu.upstream_fixes import UpstreamFixes
from inkling_hpu.warmup import WatchedWarmup

logger = logging.getLogger("vllm.inkling.hpu")  # vLLM shows loggers below its own name only


class InklingRunner(WatchedWarmup, UpstreamFixes, HPUModelRunner):
    """See the module docstring."""

    def get_kv_cache_spec(self) -> dict[str, Any]:
        """As vllm-gaudi's, every page padded by one conv row, so that vLLM budgets the rows."""
        row_bytes = self.get_model().row_bytes
        return {
            name: replace(spec, page_size_padded=spec.page_size_bytes + row_bytes)
            for name, spec in super().get_kv_cache_spec().items()
        }

    def initialize_kv_cache(self, kv_cache_config: Any) -> None:
        """As vllm-gaudi's, then conv rows for every block and the pad block.

        Runs again after a wake-up, which brings a fresh cache and therefore fresh rows.
        Raises RefusedError where the pool cannot hold one request of the longest length.
        """
        reason = pool_reason(kv_cache_config.num_blocks, self.block_size, self.max_model_len)
        if reason:
            raise RefusedError(reason)
        super().initialize_kv_cache(kv_cache_config)
        self.get_model().bind_caches(self.attn_block_size, self._PAD_BLOCK_ID, self.device)
        if kv_cache_config.num_blocks < self._PAD_BLOCK_ID:
            logger.warning(
                "vllm-gaudi allocated %d blocks for a pool of %d: conv rows follow, and use more "
                "memory than was budgeted",
                self._PAD_BLOCK_ID,
                kv_cache_config.num_blocks,
            )

    def _form_prefill_batch(self, contents: Any) -> Any:
        """As vllm-gaudi's, with our tensors in its metadata."""
        # vllm-gaudi pads the list of contexts in place: read it before.
        lengths = [len(ids) for ids in contents.token_ids]
        contexts = [int(n) for n in contents.context_lens]
        batch = super()._form_prefill_batch(contents)
        if not lengths:
            return batch
        (metadata,), (token_ids,) = batch.attn_metadata, batch.token_ids
        num_rows, row_length = token_ids.shape
        listed = 0 if metadata.block_list is None else metadata.block_list.numel()
        bucket = (num_rows, row_length, listed // num_rows)
        step = build_prefill(
            lengths,
            contexts,
            contents.blocks,
            num_rows=num_rows,
            row_length=row_length,
            num_context_blocks=bucket[-1],
            block_size=self.attn_block_size,
            pad_block=self._PAD_BLOCK_ID,
            num_far_blocks=self._far_blocks.of(self.bucketing_manager.prompt_buckets, bucket),
            reach=self._far_blocks.reach,
            switches=self.get_model().switches,
            device=self.device,
        )
        carriers.put(metadata, step, self._no_mask)
        return batch

    def _create_decode_input_data(
        self,
        num_decodes: int,
        num_scheduled_tokens: Any,
        context_lens: Any,
        block_table_cpu_tensor: Tensor,
        scheduler_output: Any = None,
    ) -> Any:
        """As vllm-gaudi's, with our tensors in its metadata."""
        data = super()._create_decode_input_data(
            num_decodes,
            num_scheduled_tokens,
            context_lens,
            block_table_cpu_tensor,
            scheduler_output,
        )
        contexts = [int(n) for n in context_lens[:num_decodes]]
        step = build_decode(
            contexts,
            self._tables(block_table_cpu_tensor, contexts),
            num_rows=data.token_ids.shape[0],
            num_blocks=data.attn_metadata.block_list.numel(),
            window=self.get_model().geometry.sliding_window,
            block_size=self.attn_block_size,
            pad_block=self._PAD_BLOCK_ID,
            switches=self.get_model().switches,
            device=self.device,
        )
        carriers.put(data.attn_metadata, step, self._no_mask)
        return data

    @cached_property
    def _far_blocks(self) -> FarBlocks:
        config, size = self.get_model().geometry, self.attn_block_size
        return FarBlocks(reach_of(max(config.rel_extent, config.sliding_window), size), size)

    def _tables(self, table_QM: Tensor, contexts: Sequence[int]) -> list[list[int]]:
        """Block ids up to each request's new token, as the device knows them."""
        counts = [context // self.attn_block_size + 1 for context in contexts]
        return [
            [self._resolve_block(block) for block in table_QM[q, :count].tolist()]
            for q, count in enumerate(counts)
        ]

    @cached_property
    def _no_mask(self) -> Tensor:
        return torch.zeros(1, dtype=torch.int64, device=self.device)
