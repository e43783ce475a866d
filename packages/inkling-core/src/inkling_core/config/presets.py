"""The two released first-generation models, as configurations, for sizes without weights.

Not for loading a checkpoint: a folder's own `config.json` decides there.

Inkling-Small: every number is its published configuration; the tensors that follow from it add up
to the published `total_size` of 531,912,898,740 bytes (a test holds this).
Inkling: 66 layers, hidden 6144, 64 query heads, 8 KV heads (16 on local layers), widths 24576 and
3072 and the mup multiplier 24 are the defaults of transformers 5.24, which agree with the
published configuration. Its context, log-scaling floor, unpadded vocabulary, two dense layers,
MTP chain and towers follow the published configuration; transformers leaves them unset or, for
the towers, uses other defaults.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from inkling_core.config.schema import AudioConfig, InklingConfig, MtpConfig, VisionConfig

_SHARED: dict[str, Any] = {
    "vocab_size": 201024,
    "unpadded_vocab_size": 200058,
    "head_dim": 128,
    "num_key_value_heads": 8,
    "d_rel": 16,
    "sliding_window": 512,
    "rel_extent": 1024,
    "dense_layer_count": 2,
    "n_routed_experts": 256,
    "num_experts_per_tok": 6,
    "n_shared_experts": 2,
    "route_scale": 8.0,
    "conv_kernel_size": 4,
    "rms_norm_eps": 1e-6,
    "log_scaling_n_floor": 128000,
    "log_scaling_alpha": 0.1,
    "max_position_embeddings": 1048576,
    # the published eos (end of sampling) and the end-of-text id of the o200k vocabulary
    "stop_token_ids": (200006, 199999),
    "mtp": MtpConfig(num_layers=8, local_layer_ids=(0, 2, 4, 5, 6, 7)),
    "vision": VisionConfig(num_layers=4, patch_size=40, temporal_patch_size=2, num_channels=3),
    "audio": AudioConfig(n_mel_bins=80, mel_vocab_size=16),
}


def _every_sixth_global(num_layers: int) -> tuple[int, ...]:
    return tuple(layer for layer in range(num_layers) if (layer + 1) % 6)


PRESETS: MappingProxyType[str, InklingConfig] = MappingProxyType(
    {
        "inkling": InklingConfig(
            hidden_size=6144,
            num_hidden_layers=66,
            num_attention_heads=64,
            swa_num_key_value_heads=16,
            local_layer_ids=_every_sixth_global(66),
            intermediate_size=24576,
            moe_intermediate_size=3072,
            logits_mup_width_multiplier=24.0,
            **_SHARED,
        ),
        "inkling_small": InklingConfig(
            hidden_size=4096,
            num_hidden_layers=42,
            num_attention_heads=32,
            swa_num_key_value_heads=8,
            local_layer_ids=_every_sixth_global(42),
            intermediate_size=16384,
            moe_intermediate_size=2048,
            logits_mup_width_multiplier=16.0,
            **_SHARED,
        ),
    }
)

BUILDS = ("bf16", "mxfp8", "nvfp4_mxfp8")
"""What the routed experts of a release may be stored in. The last has MXFP8 in the last sixth of
the layers and NVFP4 before: layers 40..47 of 48, 20..23 of 24."""
