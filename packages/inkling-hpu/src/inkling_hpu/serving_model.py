"""The model that vLLM loads on a Gaudi: one decoder, fed by vllm-gaudi's runner.

    HPUModelRunner -> forward(input_ids [Q, S], positions [Q, S]) -> Decoder(ids, HpuStep, Caches)
                   -> compute_logits(rows)                        -> Decoder.logits

`build_decoder` is the one constructor of what is served: the op counter calls it on the meta
device, the class below with weights. Importing this file needs torch only; vLLM and vllm_gaudi
are imported where an instance is made.

What it is not: the model (inkling_core.model), its Gaudi ops (inkling_hpu.ops), the runner, or a
check of the deployment (refusals.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from inkling_core.backend import OpContext
from inkling_core.config import InklingConfig
from inkling_core.conv_state.layout import ConvLayout
from inkling_core.layers.context import Caches
from inkling_core.model import Decoder
from inkling_core.serving.metrics import report_rows
from inkling_core.weights import stream
from inkling_hpu import carriers
from inkling_hpu.backend import backend, require
from inkling_hpu.conv_rows import HpuConvStore
from inkling_hpu.kv_cache import HpuKVCache
from inkling_hpu.merge_check import checked
from inkling_hpu.parallel import collectives
from inkling_hpu.self_check import check_experts
from inkling_hpu.switches import Switches

logger = logging.getLogger("vllm.inkling.hpu")  # vLLM shows loggers below its own name only


def build_decoder(
    config: InklingConfig,
    dtype: torch.dtype,
    tp_rank: int,
    tp_size: int,
    switches: Switches,
) -> Decoder:
    """The decoder that a Gaudi runs, its parameters on the meta device until weights are loaded.

    Raises ValueError where the geometry does not divide among the ranks or an op refuses it.
    """
    require(OpContext(config, dtype, torch.device("cpu"), tp_size))
    return Decoder(config, backend(switches), collectives(tp_rank, tp_size, switches), dtype)


class InklingForGaudi(nn.Module):
    """See the module docstring. vLLM finds the methods it needs by name and signature."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        from vllm.distributed import (
            get_tensor_model_parallel_rank,
            get_tensor_model_parallel_world_size,
        )
        from vllm.forward_context import get_forward_context

        from inkling_hpu.gaudi import kernels

        kernels.bind()
        model_config = vllm_config.model_config
        self.config = model_config.hf_config  # vllm-gaudi reads its model_type
        self.geometry: InklingConfig = self.config.geometry
        self.folder, self.device = model_config.model, vllm_config.device_config.device
        self.switches = Switches.from_environment()
        size = get_tensor_model_parallel_world_size()
        self.decoder = build_decoder(
            self.geometry,
            model_config.dtype,
            get_tensor_model_parallel_rank(),
            size,
            self.switches,
        )
        self.conv_layout = ConvLayout.from_config(self.geometry, size)
        modules = nn.ModuleList(_attention_modules(vllm_config, prefix, self.decoder))
        # A ModuleList is a sequence of what it was given, but is not typed as one.
        self.attention: Sequence[Any] = modules  # type: ignore[assignment]
        kernels.bind_paged_attention(self.attention[0].impl)
        self._forward_context = get_forward_context
        self._caches: Caches | None = None

    @property
    def row_bytes(self) -> int:
        """What one block costs in one layer beside its keys and values."""
        return self.conv_layout.row_bytes(self.decoder.dtype)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Reads the published files through `inkling_core.weights`, each tensor onto the device.

        `weights` is vLLM's own reader; it stays unread, since ours checks every name, shape and
        file before it reads, and shards while it reads.
        """
        del weights
        tp = self.decoder.tp
        streamed = stream(
            self.folder,
            self.geometry,
            dtype=self.decoder.dtype,
            tp_rank=tp.rank,
            tp_size=tp.size,
            progress="auto" if tp.rank == 0 else "off",
        )
        self.decoder.load_weights((name, tensor.to(self.device)) for name, tensor in streamed)
        check_experts(self.decoder)
        heads = tp.shard(self.geometry.num_attention_heads, "num_attention_heads")
        kv_heads = tp.kv_heads(self.geometry.num_key_value_heads)
        probe = (heads, kv_heads, self.geometry.head_dim, self.decoder.dtype, self.device)
        self.switches = checked(self.switches, *probe)
        logger.info(
            "Inkling: %d layers, %s, %s; a conv row takes %d bytes per block and layer",
            self.geometry.num_hidden_layers,
            self.decoder.dtype,
            self.switches,
            self.row_bytes,
        )

    def bind_caches(self, block_size: int, pad_block: int, device: Any) -> None:
        """Take the pages that the runner has just bound to the attention modules; make conv rows.

        pad_block: the caches' last block, which absorbs padding.
        """
        pages = [module.kv_cache for module in self.attention]
        keys, values = [page[0] for page in pages], [page[1] for page in pages]
        rows = HpuConvStore.of(self.decoder, pad_block, self.switches, device)
        self._caches = Caches(HpuKVCache(keys, values, block_size), rows)
        report_rows(rows.rows)

    def release_caches(self) -> None:
        """Forget pages and conv rows; `bind_caches` has to come before the next step."""
        self._caches = None

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """`[..., T]` -> `[..., T, D]`; vLLM requires it of every text model."""
        return self.decoder.embed_tokens(input_ids)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """One step of the runner: `[Q, S]` ids -> `[Q, S, D]` final-normed hidden states.

        Ids and positions are -1 in padding.
        """
        metadata = self._forward_context().attn_metadata
        step = carriers.take(metadata, positions, self.switches)
        if self._caches is None:
            raise RuntimeError("a step ran before the runner allocated its caches")
        hidden_TD = self.decoder(input_ids.flatten(), step, self._caches)
        return hidden_TD.view(*input_ids.shape, -1)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """`[R, D]` -> `[R, unpadded vocabulary]`."""
        return self.decoder.logits(hidden_states)


def _attention_modules(vllm_config: Any, prefix: str, decoder: Decoder) -> Iterator[nn.Module]:
    """One per layer, named by its index as vLLM demands."""
    from inkling_hpu.gaudi.attention import attention_module

    config, tp = decoder.config, decoder.tp
    base = f"{prefix}." if prefix else ""
    for layer in range(config.num_hidden_layers):
        yield attention_module(
            vllm_config,
            f"{base}layers.{layer}.attn",
            tp.shard(config.num_attention_heads, "num_attention_heads"),
            tp.kv_heads(config.kv_heads(layer)),
            config.head_dim,
        )
