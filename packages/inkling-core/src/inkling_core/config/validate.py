"""The rules that every `InklingConfig` obeys, whatever it was built from.

Each rule yields `Problem`s; `check` raises all of them together. Rules about the spelling of
`config.json` are not here but in `read`; rules about tensor parallelism are in
`inkling_core.weights.rules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from inkling_core.config.errors import ConfigError, Problem

if TYPE_CHECKING:
    from inkling_core.config.schema import InklingConfig

POSITIVE_INTS = (
    "vocab_size",
    "unpadded_vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "swa_num_key_value_heads",
    "head_dim",
    "d_rel",
    "sliding_window",
    "rel_extent",
    "intermediate_size",
    "moe_intermediate_size",
    "n_routed_experts",
    "num_experts_per_tok",
    "n_shared_experts",
    "conv_kernel_size",
    "max_position_embeddings",
)
POSITIVE_FLOATS = ("route_scale", "logits_mup_width_multiplier", "rms_norm_eps")
DTYPES = ("bfloat16", "float32")


def check(config: InklingConfig) -> None:
    """Raises `ConfigError` with every broken rule, or returns."""
    problems = list(_types(config))
    if not problems:  # the later rules compute with these numbers
        for rule in (_heads, _layers, _experts, _vocabulary, _mtp, _towers, _context):
            problems += rule(config)
    if problems:
        raise ConfigError(problems)


def is_int(value: object) -> bool:
    """True for an int that is not a bool (JSON `true` is no count)."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """True for a finite int or float that is not a bool."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < float("inf")


def _types(config: InklingConfig) -> Iterator[Problem]:
    for key in POSITIVE_INTS:
        value = getattr(config, key)
        if not is_int(value) or value < 1:
            yield Problem(key, value, "must be a positive integer", "give a count of at least 1")
    for key in POSITIVE_FLOATS:
        value = getattr(config, key)
        if not is_number(value) or value <= 0:
            yield Problem(key, value, "must be a positive number", "give a finite value above 0")
    floor = config.log_scaling_n_floor
    if floor is not None and (not is_int(floor) or floor < 1):
        yield Problem(
            "log_scaling_n_floor", floor, "must be a position", "give an integer >= 1 or null"
        )
    alpha = config.log_scaling_alpha
    if not is_number(alpha):
        yield Problem("log_scaling_alpha", alpha, "must be a finite number", "published: 0.1")
    dense = config.dense_layer_count
    if not is_int(dense) or dense < 0:
        yield Problem("dense_layer_count", dense, "must be a count", "give an integer >= 0")
    for key in ("local_layer_ids", "stop_token_ids"):
        ids = getattr(config, key)
        if not all(is_int(one) and one >= 0 for one in ids):
            yield Problem(key, ids, "must hold ids", "give integers >= 0")
    if config.dtype not in DTYPES:
        yield Problem(
            "dtype", config.dtype, "is not a stored dtype we read", f"use one of {list(DTYPES)}"
        )


def _heads(config: InklingConfig) -> Iterator[Problem]:
    for key in ("num_key_value_heads", "swa_num_key_value_heads"):
        count = getattr(config, key)
        if config.num_attention_heads % count:
            yield Problem(
                key,
                count,
                f"does not divide num_attention_heads = {config.num_attention_heads}",
                "every KV head serves the same number of query heads",
            )


def _layers(config: InklingConfig) -> Iterator[Problem]:
    layers = config.num_hidden_layers
    if len(set(config.local_layer_ids)) != len(config.local_layer_ids):
        yield Problem(
            "local_layer_ids", config.local_layer_ids, "names a layer twice", "list each once"
        )
    outside = [layer for layer in config.local_layer_ids if layer >= layers]
    if outside:
        yield Problem(
            "local_layer_ids",
            outside,
            f"are not layers of a model with num_hidden_layers = {layers}",
            f"use 0..{layers - 1}",
        )
    if config.dense_layer_count > layers:
        yield Problem(
            "dense_layer_count",
            config.dense_layer_count,
            f"exceeds num_hidden_layers = {layers}",
            f"use 0..{layers}",
        )


def _experts(config: InklingConfig) -> Iterator[Problem]:
    if config.num_experts_per_tok > config.n_routed_experts:
        yield Problem(
            "num_experts_per_tok",
            config.num_experts_per_tok,
            f"exceeds n_routed_experts = {config.n_routed_experts}",
            "a token cannot choose more experts than there are",
        )
    if config.conv_kernel_size < 2:
        yield Problem(
            "conv_kernel_size",
            config.conv_kernel_size,
            "leaves no history to convolve",
            "published: 4 taps",
        )


def _vocabulary(config: InklingConfig) -> Iterator[Problem]:
    kept = config.unpadded_vocab_size
    if kept > config.vocab_size:
        yield Problem(
            "unpadded_vocab_size",
            kept,
            f"exceeds vocab_size = {config.vocab_size}",
            "it counts the rows kept of the padded table",
        )
    if not config.stop_token_ids:
        yield Problem(
            "stop_token_ids",
            config.stop_token_ids,
            "no token would ever end a generation",
            "set eos_token_id at the top level of config.json or in generation_config.json "
            "(published: 200006)",
        )
    outside = [token for token in config.stop_token_ids if token >= kept]
    if outside:
        yield Problem(
            "stop_token_ids",
            outside,
            f"cannot be generated: the model has {kept} logits",
            "use ids below unpadded_vocab_size",
        )


def _mtp(config: InklingConfig) -> Iterator[Problem]:
    if config.mtp is None:
        return
    count = config.mtp.num_layers
    if not is_int(count) or count < 1:
        yield Problem("mtp.num_layers", count, "must be a positive integer", "or leave mtp out")
        return
    outside = [depth for depth in config.mtp.local_layer_ids if not 0 <= depth < count]
    if outside:
        yield Problem(
            "mtp.local_layer_ids",
            outside,
            f"are not depths of a chain of {count}",
            f"use 0..{count - 1}",
        )


def _towers(config: InklingConfig) -> Iterator[Problem]:
    for name, tower in (("vision", config.vision), ("audio", config.audio)):
        for key, value in vars(tower).items() if tower is not None else ():
            if not is_int(value) or value < 1:
                yield Problem(
                    f"{name}.{key}", value, "must be a positive integer", "or leave the tower out"
                )


def _context(config: InklingConfig) -> Iterator[Problem]:
    if config.max_position_embeddings < 2:
        yield Problem(
            "max_position_embeddings",
            config.max_position_embeddings,
            "holds no prompt and answer",
            "published: 1048576",
        )
