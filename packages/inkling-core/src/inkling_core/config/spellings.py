"""Every key that a first-generation `config.json` may hold, in both spellings, as tables.

Published and transformers files name the same numbers differently; `read` applies these tables.

| published text_config                                       | transformers                |
|--------------------------------------------------------------|-----------------------------|
| `intermediate_size` beside `dense_intermediate_size`         | `moe_intermediate_size`     |
| `dense_intermediate_size`                                    | `intermediate_size`         |
| `dense_mlp_idx`                                              | `mlp_layer_types`           |
| `local_layer_ids`                                            | `layer_types`               |
| `sconv_kernel_size`                                          | `conv_kernel_size`          |
| `model_max_length`                                           | `max_position_embeddings`   |
| top-level `mtp_config`                                       | `num_mtp_layers` and others |
"""

from __future__ import annotations

from typing import Any


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAMES: dict[str, tuple[str, ...]] = {
    "vocab_size": ("vocab_size",),
    "hidden_size": ("hidden_size",),
    "num_hidden_layers": ("num_hidden_layers",),
    "num_attention_heads": ("num_attention_heads",),
    "num_key_value_heads": ("num_key_value_heads",),
    "swa_num_key_value_heads": ("swa_num_key_value_heads",),
    "head_dim": ("head_dim",),
    "d_rel": ("d_rel",),
    "sliding_window": ("sliding_window_size", "sliding_window"),
    "rel_extent": ("rel_extent",),
    "n_routed_experts": ("n_routed_experts", "num_local_experts"),
    "num_experts_per_tok": ("num_experts_per_tok",),
    "n_shared_experts": ("n_shared_experts",),
    "route_scale": ("route_scale",),
    "logits_mup_width_multiplier": ("logits_mup_width_multiplier", "embedding_multiplier"),
    "max_position_embeddings": ("model_max_length", "max_position_embeddings"),
}
"""Attribute -> the keys that may hold it. All are required: where a key is missing, transformers
and vLLM fall back to different numbers, so a default here would agree with only one of them."""

DEFAULTED: dict[str, tuple[tuple[str, ...], Any]] = {
    "conv_kernel_size": (("sconv_kernel_size", "conv_kernel_size"), 4),
    "rms_norm_eps": (("rms_norm_eps",), 1e-6),
    "log_scaling_n_floor": (("log_scaling_n_floor",), None),
    "log_scaling_alpha": (("log_scaling_alpha",), 0.1),
    "unpadded_vocab_size": (("unpadded_vocab_size",), None),
}
"""Attribute -> (keys, default); transformers and vLLM agree on these defaults."""

FIXED: dict[str, tuple[Any, ...]] = {
    "use_embed_norm": (True,),
    "use_sconv": (True,),
    "use_gate_bias": (True,),
    "use_global_scale": (True,),
    "norm_after_topk": (True,),
    "shared_expert_sink": (True,),
    "inference_moe_w13_interleaved": (True,),
    "mtp_hidden_states_first": (True,),
    "gate_activation": ("sigmoid",),
    "hidden_act": ("silu",),
    "final_logit_softcapping": (None,),
    "q_bias": (False,),
    "o_bias": (False,),
    "tie_word_embeddings": (False,),
    "shared_experts_size": (1,),
    "number_of_conv_states": (4,),
}
"""Switches of the architecture: the only values that any released model has and that we compute."""

SAME_AS: dict[str, str] = {
    "swa_num_attention_heads": "num_attention_heads",
    "swa_head_dim": "head_dim",
    "v_head_dim": "head_dim",
    "swa_v_head_dim": "head_dim",
}
"""Keys that could differ per layer kind but are equal in every released model."""

LAYOUT = _names(
    "intermediate_size moe_intermediate_size dense_intermediate_size local_layer_ids layer_types "
    "dense_mlp_idx mlp_layer_types num_mtp_layers mtp_local_layer_ids chain_hidden_post_norm "
    "eos_token_id dtype torch_dtype model_type"
)
"""Keys of `text_config` that `read` interprets one by one."""

IGNORED = _names(
    # bookkeeping of transformers and training-time settings: no effect on what is computed
    "_name_or_path architectures auto_map transformers_version initializer_range use_cache "
    "attention_dropout bos_token_id pad_token_id rms_norm_eps_moe_gate return_dict "
    "output_attentions output_hidden_states id2label label2id problem_type chunk_size_feed_forward "
    "is_encoder_decoder _attn_implementation attn_implementation "
    # ids of placeholders for images and audio: text is all that is served
    "image_token_id audio_token_id image_bos_token_id audio_bos_token_id"
)

TOP = _names(
    "text_config vision_config audio_config mtp_config model_type eos_token_id dtype torch_dtype "
    "tie_word_embeddings"
)

MTP = _names("num_nextn_predict_layers local_layer_ids chain_hidden_post_norm")

VISION = _names(
    "model_type vision_encoder_type decoder_dmodel text_hidden_size patch_size temporal_patch_size "
    "n_channels num_channels n_layers num_hidden_layers use_vision_norm hidden_size "
    "num_attention_heads rms_norm_eps dtype torch_dtype"
)

AUDIO = _names(
    "model_type decoder_dmodel text_hidden_size n_mel_bins num_codebooks mel_vocab_size "
    "codebook_size bias dmel_min_value dmel_max_value use_audio_norm audio_mode rms_norm_eps "
    "hidden_size dtype torch_dtype"
)

SECOND_GENERATION = frozenset({"inkling2", "inkling2_text", "inkling2_loop", "inkling2_loop_text"})
FIRST_GENERATION = frozenset({"inkling_mm_model"})


def text_keys() -> frozenset[str]:
    """All keys known inside `text_config`."""
    aliases = [key for keys in NAMES.values() for key in keys]
    aliases += [key for keys, _ in DEFAULTED.values() for key in keys]
    return LAYOUT | IGNORED | frozenset(aliases) | frozenset(FIXED) | frozenset(SAME_AS)
