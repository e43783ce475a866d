"""The geometries that are compared with transformers: each one is there for a reason it states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Geometry:
    """Overrides of `hf_oracle.TEXT_BASE`, prompt lengths and chunk sizes that cross its edges."""

    name: str
    why: str
    text: dict[str, Any] = field(default_factory=dict)
    lengths: tuple[int, ...] = (80, 37, 5)
    chunk_sizes: tuple[int, ...] = (1, 2, 3, 5, 15, 16, 17)
    block_size: int = 16
    seed: int = 0


GEOMETRIES = (
    Geometry("small", "window 16, extent 32, floor 24, all crossed by 80 tokens"),
    Geometry(
        "odd",
        "three taps, six heads on three, odd widths, extent below the window, every layer expert",
        {
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "swa_num_attention_heads": 6,
            "swa_num_key_value_heads": 3,
            "head_dim": 10,
            "swa_head_dim": 10,
            "sliding_window_size": 13,
            "rel_extent": 9,
            "log_scaling_n_floor": 5,
            "conv_kernel_size": 3,
            "dense_mlp_idx": 0,
            "moe_intermediate_size": 24,
            "n_routed_experts": 7,
            "num_experts_per_tok": 3,
            "n_shared_experts": 1,
            "vocab_size": 131,
            "unpadded_vocab_size": 131,
        },
        seed=1,
    ),
    Geometry(
        "wide-local",
        "Inkling's shape: twice the key/value heads on local layers; no log scaling; two dense",
        {
            "num_key_value_heads": 1,
            "swa_num_key_value_heads": 2,
            "log_scaling_n_floor": None,
            "dense_mlp_idx": 2,
            "num_hidden_layers": 7,
            "local_layer_ids": [0, 1, 2, 3, 4, 6],
        },
        seed=2,
    ),
    Geometry(
        "deep",
        "twelve layers, two of sixteen experts, larger log scaling",
        {
            "num_hidden_layers": 12,
            "local_layer_ids": [0, 1, 2, 3, 4, 6, 7, 8, 9, 10],
            "n_routed_experts": 16,
            "log_scaling_alpha": 0.2,
        },
        seed=3,
    ),
    Geometry(
        "published",
        "the real window 512, extent 1,024 and block 128, with a prompt of 1,300 tokens",
        {
            "sliding_window_size": 512,
            "rel_extent": 1024,
            "log_scaling_n_floor": 700,
            "num_hidden_layers": 3,
            "local_layer_ids": [0, 2],
        },
        lengths=(1300, 513),
        chunk_sizes=(1, 127, 128, 129, 300),
        block_size=128,
        seed=4,
    ),
)
