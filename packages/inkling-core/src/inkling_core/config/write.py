"""An `InklingConfig` as `config.json` content in the published spelling.

The inverse of `read`: `read_config(to_published(c))` equals `c`. transformers and vLLM read it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inkling_core.config.spellings import DEFAULTED, NAMES

if TYPE_CHECKING:
    from inkling_core.config.schema import InklingConfig


def to_published(config: InklingConfig) -> dict[str, Any]:
    """The whole document. Stop ids keep their order; a single one is written as a number."""
    stops = list(config.stop_token_ids)
    document: dict[str, Any] = {
        "architectures": ["InklingForConditionalGeneration"],
        "model_type": "inkling_mm_model",
        "eos_token_id": stops[0] if len(stops) == 1 else stops,
        "dtype": config.dtype,
        "text_config": _text(config),
    }
    if config.audio is not None:
        document["audio_config"] = {
            "decoder_dmodel": config.hidden_size,
            "n_mel_bins": config.audio.n_mel_bins,
            "mel_vocab_size": config.audio.mel_vocab_size,
            "bias": False,
            "dmel_min_value": -7.0,
            "dmel_max_value": 2.0,
            "use_audio_norm": True,
            "audio_mode": "dmel",
        }
    if config.vision is not None:
        document["vision_config"] = {
            "vision_encoder_type": "hmlp",
            "decoder_dmodel": config.hidden_size,
            "patch_size": config.vision.patch_size,
            "temporal_patch_size": config.vision.temporal_patch_size,
            "n_channels": config.vision.num_channels,
            "n_layers": config.vision.num_layers,
            "use_vision_norm": True,
        }
    if config.mtp is not None:
        document["mtp_config"] = {
            "num_nextn_predict_layers": config.mtp.num_layers,
            "chain_hidden_post_norm": config.mtp.chain_hidden_post_norm,
            "local_layer_ids": list(config.mtp.local_layer_ids),
        }
    return document


def _text(config: InklingConfig) -> dict[str, Any]:
    text = {keys[0]: getattr(config, name) for name, keys in NAMES.items()}
    text |= {keys[0]: getattr(config, name) for name, (keys, _) in DEFAULTED.items()}
    return {
        **text,
        "torch_dtype": config.dtype,
        "intermediate_size": config.moe_intermediate_size,
        "dense_intermediate_size": config.intermediate_size,
        "dense_mlp_idx": config.dense_layer_count,
        "local_layer_ids": list(config.local_layer_ids),
        "swa_num_attention_heads": config.num_attention_heads,
        "swa_head_dim": config.head_dim,
        "final_logit_softcapping": None,
        "q_bias": False,
        "o_bias": False,
        "use_embed_norm": True,
        "use_sconv": True,
        "use_gate_bias": True,
        "use_global_scale": True,
        "shared_expert_sink": True,
        "gate_activation": "sigmoid",
        "norm_after_topk": True,
    }
