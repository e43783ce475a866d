"""Geometry of inkling-nano, and the values its weights start from.

What it is: the shipped model's configuration and one table of starting distributions by name.
What it is not: names and shapes (inkling_core.weights.names owns them), or training.

A prompt of 2,048 tokens crosses everything: window 128, global extent 192, log-scaling floor 160,
sixteen blocks of 128, padded vocabulary rows, local and global layers, dense and expert MLPs.
alpha = 1.0 (published models: 0.1) makes tau 3.55 there, so that a dropped tau is seen.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inkling_core.config import InklingConfig
from inkling_core.nano.vocabulary import STOP_IDS, UNPADDED_VOCAB_SIZE, VOCAB_SIZE
from inkling_core.weights.names import text_tensors

NANO = InklingConfig(
    vocab_size=VOCAB_SIZE,
    unpadded_vocab_size=UNPADDED_VOCAB_SIZE,
    hidden_size=128,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    swa_num_key_value_heads=2,
    head_dim=32,
    d_rel=8,
    sliding_window=128,
    rel_extent=192,
    local_layer_ids=(0, 1, 3, 4),
    intermediate_size=256,
    moe_intermediate_size=32,
    n_routed_experts=8,
    num_experts_per_tok=2,
    n_shared_experts=2,
    route_scale=4.0,
    logits_mup_width_multiplier=2.0,
    max_position_embeddings=32768,
    stop_token_ids=STOP_IDS,
    dense_layer_count=1,
    log_scaling_n_floor=160,
    log_scaling_alpha=1.0,
)

FILLED = {  # weights that start at a constant, by the end of their name
    "q_norm.weight": 3.0,  # scores q.k / head_dim then reach 9: sharp enough to look something up
    "k_norm.weight": 3.0,
    "norm.weight": 1.0,
    "gate.bias": 0.0,
    "global_scale": 1.0,
}
SPREAD = {  # weights that start normal with this standard deviation
    "embed.weight": 1.0,  # `unembed` is looked up before it
    "sconv.weight": 0.2,
    "rel_logits_proj.proj": 0.1,
    "gate.weight": 0.02,
}
HEAD_SPREAD = 0.02
OUTPUTS = ("wo_ud.weight", "w2_md.weight", "w2_weight")  # end a residual branch: start at a third


def _start(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    for ending, value in FILLED.items():
        if name.endswith(ending):
            return torch.full(shape, value)
    if name == "unembed.weight":
        spread = HEAD_SPREAD
    else:
        found = (value for ending, value in SPREAD.items() if name.endswith(ending))
        spread = next(found, shape[-1] ** -0.5)
    if name.endswith(OUTPUTS):
        spread /= 3
    return torch.randn(shape, generator=generator) * spread


def initial_weights(seed: int) -> dict[str, Tensor]:
    """Float32 weights of the language model by name without `model.llm.`, from one generator."""
    generator = torch.Generator().manual_seed(seed)
    return {spec.key: _start(spec.key, spec.shape, generator) for spec in text_tensors(NANO)}
