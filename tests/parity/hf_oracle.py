"""Independent reference: random checkpoints made and run by HF transformers' own Inkling classes.

Not our math: nothing here imports `inkling_core`'s ops. A checkpoint is written by transformers in
the published format (raw names), with side weights that are random and large enough that a fault
in any line of the math moves the logits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SIZES: dict[str, Any] = {
    "vocab_size": 160,
    "unpadded_vocab_size": 151,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 16,
    "sliding_window_size": 16,
    "d_rel": 8,
    "rel_extent": 32,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
}
"""What both generations have."""

TEXT_BASE: dict[str, Any] = {
    **SIZES,
    "num_hidden_layers": 5,
    "log_scaling_n_floor": 24,
    "log_scaling_alpha": 0.1,
    "local_layer_ids": [0, 1, 3],
    "dense_mlp_idx": 1,
    "intermediate_size": 96,
    "n_shared_experts": 2,
    "route_scale": 4.0,
    "logits_mup_width_multiplier": 1.8,
    "max_position_embeddings": 4096,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VISION: dict[str, Any] = {"patch_size": 4, "temporal_patch_size": 2, "num_hidden_layers": 3}


def make_checkpoint(
    directory: Path, seed: int = 0, dtype: torch.dtype = torch.float32, **text: Any
) -> nn.Module:
    """Writes a random checkpoint in the published format; returns the transformers model."""
    from transformers.models.inkling import configuration_inkling as configs
    from transformers.models.inkling.modeling_inkling import InklingForConditionalGeneration

    text_values = {**TEXT_BASE, **text}
    hidden = text_values["hidden_size"]
    config = configs.InklingConfig(
        text_config=configs.InklingTextConfig(**text_values),
        vision_config=configs.InklingVisionConfig(**{**VISION, "text_hidden_size": hidden}),
        audio_config=configs.InklingAudioConfig(
            n_mel_bins=4, mel_vocab_size=4, text_hidden_size=hidden
        ),
    )
    config.eos_token_id = text_values["eos_token_id"]
    torch.manual_seed(seed)
    model = InklingForConditionalGeneration(config).eval()
    model.config._attn_implementation = "eager"
    model.config.text_config._attn_implementation = "eager"
    _randomise(model, torch.Generator().manual_seed(seed))
    model.to(dtype)
    for name, parameter in model.named_parameters():  # what transformers keeps in float32
        if "sconv" in name or "gate.global_scale" in name:
            parameter.data = parameter.data.float()
    for name, buffer in model.named_buffers():
        if "e_score_correction_bias" in name:
            buffer.data = buffer.data.float()
    model.save_pretrained(directory)
    return model


def _randomise(model: nn.Module, generator: torch.Generator) -> None:
    """Gives every tensor a scale at which it matters."""

    def normal(tensor: Tensor, mean: float, std: float) -> None:
        tensor.data.copy_(mean + std * torch.randn(tensor.shape, generator=generator))

    for name, parameter in model.named_parameters():
        if "norm" in name:
            normal(parameter, 1.4 if ("q_norm" in name or "k_norm" in name) else 1.0, 0.2)
        elif "sconv" in name:
            normal(parameter, 0.0, 0.3)
        elif "global_scale" in name:
            normal(parameter, 1.2, 0.1)
        elif "rel_logits_proj" in name:
            normal(parameter, 0.0, 0.5)
        elif "embed_tokens" in name:
            normal(parameter, 0.0, 1.0)
        elif parameter.dim() >= 2:
            normal(parameter, 0.0, 1.0 / parameter.shape[-1] ** 0.5)
    for name, buffer in model.named_buffers():
        if "e_score_correction_bias" in name:
            normal(buffer, 0.0, 0.3)


@torch.no_grad()
def hf_logits(model: nn.Module, ids: list[int], chunks: list[int] | None = None) -> Tensor:
    """`[T, V]` logits of one sequence, in one shot or fed through transformers' cache."""
    ids_BT = torch.tensor([ids])
    if chunks is None:
        return model(input_ids=ids_BT, use_cache=False).logits[0]
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config.text_config)
    parts, start = [], 0
    for size in chunks:
        out = model(input_ids=ids_BT[:, start : start + size], cache=cache, use_cache=True)
        parts.append(out.logits[0])
        start += size
    return torch.cat(parts)
