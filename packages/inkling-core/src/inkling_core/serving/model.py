"""The vLLM-facing model class, written once for every back end.

    vLLM's runner -> forward(input_ids, positions) -> Decoder(ids, Step, Caches) -> hidden
                  -> compute_logits(hidden rows)   -> Decoder.logits

What it is: construction from vLLM's configuration, weights from the published files, the pages
that vLLM allots bound to the decoder's caches, and the step that vLLM scheduled handed to it.

What it is not: the model (inkling_core.model), a kernel, or a scheduler.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.distributed import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    tensor_model_parallel_all_gather,
    tensor_model_parallel_all_reduce,
)
from vllm.forward_context import get_forward_context
from vllm.logger import init_logger

from inkling_core.config import InklingConfig
from inkling_core.conv_state.layout import ConvLayout
from inkling_core.layers.context import Caches
from inkling_core.model import Decoder
from inkling_core.parallel import TensorParallel
from inkling_core.serving.cache_layer import InklingCacheLayer
from inkling_core.serving.conv_rows import LayerConvStore
from inkling_core.serving.metadata import InklingMetadata
from inkling_core.serving.metrics import report_rows
from inkling_core.serving.paged_cache import PagedKVCache
from inkling_core.serving.plan import conv_row_dtype, kv_heads_per_rank, page_layout, row_share
from inkling_core.serving.settings import ServeSettings
from inkling_core.weights import stream

logger = init_logger("vllm.inkling.model")  # vLLM shows loggers below its own name only


class InklingForServing(nn.Module):
    """See the module docstring. vLLM finds the methods it needs by name and signature."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        if vllm_config.speculative_config is not None:
            raise ValueError("speculative decoding is not served: conv rows cannot be rolled back")
        model_config = vllm_config.model_config
        self.folder = model_config.model
        self.config: InklingConfig = model_config.hf_config.geometry
        self.settings = ServeSettings.from_environment(os.environ)
        tp = _tensor_parallel()
        self.decoder = Decoder(self.config, _backend(self.settings.backend), tp, model_config.dtype)
        self.conv_layout = ConvLayout.from_config(self.config, tp.size)
        layout = page_layout(
            self.config,
            tp.size,
            vllm_config.cache_config.block_size,
            model_config.dtype,
            conv_row_dtype(self.settings.conv_dtype, model_config.dtype),
        )
        base = f"{prefix}." if prefix else ""
        layers = [
            InklingCacheLayer(
                vllm_config,
                f"{base}layers.{layer}.cache",
                layout,
                kv_heads_per_rank(self.config.kv_heads(layer), tp.size),
            )
            for layer in range(self.config.num_hidden_layers)
        ]
        # A ModuleList is a sequence of what it was given, but is not typed as one.
        self.cache_layers: Sequence[InklingCacheLayer] = nn.ModuleList(layers)  # type: ignore[assignment]
        self._caches: Caches | None = None

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Reads the published files through `inkling_core.weights`.

        `weights` is vLLM's own reader; it stays unread, since ours checks every name, shape and
        file before it reads, and shards while it reads.
        """
        del weights
        tp = self.decoder.tp
        self.decoder.load_weights(
            stream(
                self.folder,
                self.config,
                dtype=self.decoder.dtype,
                tp_rank=tp.rank,
                tp_size=tp.size,
                progress="auto" if tp.rank == 0 else "off",
                pack_experts=self.settings.pack_experts,
            )
        )
        logger.info(
            "Inkling: %d layers, %s, back end %s, conv rows %s (%.1f %% of the KV pool)",
            self.config.num_hidden_layers,
            self.decoder.dtype,
            self.settings.backend,
            self.cache_layers[0].layout.row_dtype,
            100 * row_share(self.cache_layers[0].layout),
        )

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """`[T]` -> `[T, D]`; vLLM requires it of every text model."""
        return self.decoder.embed_tokens(input_ids)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """One scheduled step: `[T]` ids -> `[T, D]` final-normed hidden states.

        A request with a non-finite value in any of its rows has all its rows turned to NaN, so
        that its logits show it even where the bad position is not the sampled one.
        """
        metadata = self._metadata()
        if metadata is None:  # vLLM sizes its buffers with a run that has no requests
            return torch.zeros(len(input_ids), self.config.hidden_size, dtype=self.decoder.dtype)
        hidden_TD = self.decoder(input_ids, metadata.step, self._bound_caches())
        return spread_poison(hidden_TD, metadata.step.starts)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """`[R, D]` -> `[R, unpadded vocabulary]`."""
        return self.decoder.logits(hidden_states)

    def _metadata(self) -> InklingMetadata | None:
        per_layer = get_forward_context().attn_metadata
        if not isinstance(per_layer, dict):
            return None
        metadata: Any = per_layer.get(self.cache_layers[0].prefix)  # built by our own builder
        return metadata

    def _bound_caches(self) -> Caches:
        """The decoder's caches over the pages that vLLM bound; made at the first step."""
        if self._caches is None:
            views = [layer.views for layer in self.cache_layers if layer.views is not None]
            rows = [view.rows_PJC for view in views]
            self._caches = Caches(
                PagedKVCache([v.keys_PLGH for v in views], [v.values_PLGH for v in views]),
                LayerConvStore(rows, self.conv_layout),
            )
            report_rows(rows)
        return self._caches


def spread_poison(hidden_TD: Tensor, starts: tuple[int, ...]) -> Tensor:
    """Rows of every request that has a non-finite row become NaN; other rows stay as they are."""
    finite_T = torch.isfinite(hidden_TD).all(dim=-1)
    if bool(finite_T.all()):
        return hidden_TD
    hidden_TD = hidden_TD.clone()
    for start, end in pairwise(starts):
        if not bool(finite_T[start:end].all()):
            hidden_TD[start:end] = float("nan")
    return hidden_TD


def _backend(name: str) -> Any:
    from inkling_core.backend import REFERENCE

    if name == "reference":
        return REFERENCE
    from inkling_core.serving.cpu import CPU, kernels

    logger.info("CPU kernels: %s", kernels.load())
    return CPU


def _tensor_parallel() -> TensorParallel:
    return TensorParallel(
        rank=get_tensor_model_parallel_rank(),
        size=get_tensor_model_parallel_world_size(),
        all_reduce=tensor_model_parallel_all_reduce,
        all_gather=tensor_model_parallel_all_gather,
    )
