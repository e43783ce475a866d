"""The models of these tests: stock ones, the embedded nano, and a random one of Inkling-Small's
shape.

What it is: writers of small checkpoints. Random ones have logits with a standard deviation of at
least 1, so that a limit on logit gaps means something.

    Small's shape   6 layers, 5 local and 1 global, the first two dense (twelve, of which every
                    sixth is global, in `deep`); head_dim, window, bias extents, 6 routed plus 2
                    shared experts as published; layers, hidden, heads, experts and vocabulary
                    made small
    steady routing  K experts per layer are preferred by a selection bias that no rounding can
                    outweigh (sigmoids lie within 1 of each other), so bfloat16 flips nothing

What it is not: the published weights.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

STEADY_BIAS = 10.0
SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "dense_layer_count": 2,
    "vocab_size": 512,
    "unpadded_vocab_size": 500,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "swa_num_key_value_heads": 2,
    "head_dim": 128,
    "d_rel": 16,
    "sliding_window": 512,
    "rel_extent": 1024,
    "intermediate_size": 384,
    "moe_intermediate_size": 64,
    "n_routed_experts": 16,
    "num_experts_per_tok": 6,
    "n_shared_experts": 2,
    "logits_mup_width_multiplier": 16.0,
    "max_position_embeddings": 4096,
    "log_scaling_n_floor": 384,  # published: 131,072, which no CPU test reaches
    "mtp": None,
    "vision": None,
    "audio": None,
}


def stock(folder: Path, kind: str) -> Path:
    """A random two-layer Llama or Qwen3 in bfloat16, by transformers."""
    transformers = transformers_beside_torchvision()
    names = {
        "llama": ("LlamaConfig", "LlamaForCausalLM"),
        "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    }
    config_class, model_class = (getattr(transformers, name) for name in names[kind])
    config = config_class(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = model_class(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.08)
        model.lm_head.weight.normal_(0, 0.2)
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


def transformers_beside_torchvision() -> Any:
    """transformers, imported where torchvision's C part may not load."""
    from inkling_hpu.emulation.vision_ops import declare_missing

    declare_missing()
    return importlib.import_module("transformers")


def small(folder: Path, seed: int = 0, layers: int = 6) -> Path:
    """A random model of Inkling-Small's shape in bfloat16, its routing steady."""
    from inkling_core.weights.tiny import make_tiny

    local = tuple(layer for layer in range(layers) if layer % 6 != 5)
    shape = {**SMALL, "num_hidden_layers": layers, "local_layer_ids": local}
    make_tiny(folder, shape, seed=seed, dtype=torch.bfloat16, tokenizer=True)
    steady(folder / "model.safetensors", SMALL["num_experts_per_tok"], seed)
    return folder


def steady(file: Path, chosen: int, seed: int) -> None:
    """Prefer `chosen` experts of every MoE layer by STEADY_BIAS, in place."""
    tensors = load_file(file)
    generator = torch.Generator().manual_seed(seed + 1)
    for name in [name for name in tensors if name.endswith("gate.bias")]:
        rank = torch.randperm(len(tensors[name]), generator=generator)
        tensors[name] += STEADY_BIAS * (rank < chosen)
    save_file(tensors, file, metadata={"format": "pt"})


def nano(folder: Path) -> Path:
    """The embedded trained model; nothing is written."""
    from inkling_core.embedded import EMBEDDED

    del folder
    return EMBEDDED
