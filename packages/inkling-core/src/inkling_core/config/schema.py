"""`InklingConfig`: the shape of one first-generation Inkling model, frozen and valid once built.

It holds numbers and answers per-layer questions; spellings of `config.json` belong to `read`,
rules to `validate`, known models to `presets`, tensor shapes to `inkling_core.weights.names`.

A local layer sees a sliding window and biases distances below that window; a global layer sees
everything and biases distances below `rel_extent`:

    window(layer)   = sliding_window on local layers, None on global ones
    extent(layer)   = sliding_window on local layers, rel_extent on global ones
    kv_heads(layer) = swa_num_key_value_heads on local layers, num_key_value_heads on global ones

The last line matters: Inkling has 16 KV heads on local layers and 8 on global ones
(Inkling-Small has 8 on both).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class MtpConfig:
    """Multi-token-prediction chain: `num_layers` dense blocks, some of them local."""

    num_layers: int
    local_layer_ids: tuple[int, ...] = ()
    chain_hidden_post_norm: bool = False

    def is_local(self, depth: int) -> bool:
        """Whether the block at `depth` uses the sliding window."""
        return depth in self.local_layer_ids


@dataclass(frozen=True)
class VisionConfig:
    """Image tower (a hierarchical MLP over patches). Read for sizes only; it is never run."""

    num_layers: int
    patch_size: int
    temporal_patch_size: int
    num_channels: int = 3


@dataclass(frozen=True)
class AudioConfig:
    """Audio tower (one embedding table of discretised mel bins). Read for sizes only."""

    n_mel_bins: int
    mel_vocab_size: int


@dataclass(frozen=True)
class InklingConfig:
    """Text model of the first generation. Counts are counts, widths are elements, ids are ids.

    Building one validates it: a bad combination raises `ConfigError` listing every fault.
    """

    vocab_size: int
    """Rows of the embedding and unembedding tables, padding included."""
    unpadded_vocab_size: int
    """Logits kept, at most `vocab_size`."""
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    """KV heads of global layers."""
    swa_num_key_value_heads: int
    """KV heads of local layers."""
    head_dim: int
    d_rel: int
    """Width of the per-head relative query."""
    sliding_window: int
    """Keys a local layer sees, its own position included; also the extent of its bias."""
    rel_extent: int
    """Distances that a global layer's bias covers."""
    local_layer_ids: tuple[int, ...]
    intermediate_size: int
    """Width of the dense MLP."""
    moe_intermediate_size: int
    """Width of one expert, routed or shared."""
    n_routed_experts: int
    num_experts_per_tok: int
    n_shared_experts: int
    route_scale: float
    logits_mup_width_multiplier: float
    max_position_embeddings: int
    stop_token_ids: tuple[int, ...]
    """Ids that end a generation; never empty."""
    dense_layer_count: int = 0
    """The first this many layers have a dense MLP."""
    conv_kernel_size: int = 4
    rms_norm_eps: float = 1e-6
    log_scaling_n_floor: int | None = None
    """Position from which global layers scale their logits by tau; None switches tau off."""
    log_scaling_alpha: float = 0.1
    dtype: str = "bfloat16"
    """What the checkpoint's weights are stored in."""
    mtp: MtpConfig | None = None
    vision: VisionConfig | None = None
    audio: AudioConfig | None = None

    def __post_init__(self) -> None:
        from inkling_core.config.validate import check

        object.__setattr__(self, "local_layer_ids", tuple(sorted(self.local_layer_ids)))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        check(self)

    def is_local(self, layer: int) -> bool:
        """Whether `layer` uses the sliding window."""
        return layer in self.local_layer_ids

    def is_dense(self, layer: int) -> bool:
        """Whether `layer` has a dense MLP in place of experts."""
        return layer < self.dense_layer_count

    def window(self, layer: int) -> int | None:
        """Keys that `layer` sees (its own included), None where it sees everything."""
        return self.sliding_window if self.is_local(layer) else None

    def extent(self, layer: int) -> int:
        """Distances that the relative bias of `layer` covers: 0 .. extent-1."""
        return self.sliding_window if self.is_local(layer) else self.rel_extent

    def kv_heads(self, layer: int) -> int:
        """KV heads of `layer`."""
        return self.kv_heads_of(self.is_local(layer))

    def kv_heads_of(self, local: bool) -> int:
        """KV heads of a local or global block, MTP blocks included."""
        return self.swa_num_key_value_heads if local else self.num_key_value_heads

    def replace(self, **changes: Any) -> InklingConfig:
        """A validated copy with `changes` applied."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """`config.json` content in the published spelling; `from_dict` reads it back equal."""
        from inkling_core.config.write import to_published

        return to_published(self)

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], *, stop_token_ids: tuple[int, ...] | None = None
    ) -> InklingConfig:
        """Reads `config.json` content, published or transformers spelling.

        Args:
            data: the whole document (with its `text_config`).
            stop_token_ids: used in place of the document's `eos_token_id`.

        Raises:
            ConfigError: lists every unknown, contradictory, missing or impossible key.
        """
        from inkling_core.config.read import read_config

        return read_config(data, stop_token_ids=stop_token_ids)

    @classmethod
    def from_checkpoint(cls, directory: str | Path) -> InklingConfig:
        """Reads `config.json`, `generation_config.json` and the tokenizer's stop tokens.

        Raises:
            ConfigError: no such folder or file, not JSON, or as `from_dict`.
        """
        from inkling_core.config.folder import read_folder

        return read_folder(Path(directory))
