"""From the content of a `config.json` to an `InklingConfig`, in either spelling.

It applies the tables of `spellings` and finds what only the document can show: unknown keys,
two spellings that contradict each other, missing keys. What the numbers themselves must obey is
`validate`'s. Files are read by `folder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inkling_core.config import spellings
from inkling_core.config.document import Document
from inkling_core.config.errors import ConfigError, Problem
from inkling_core.config.layer_kinds import dense_count, local_ids, widths
from inkling_core.config.schema import AudioConfig, InklingConfig, MtpConfig, VisionConfig
from inkling_core.config.validate import is_int

_ENDS_NOTHING = "no token would ever end a generation"


def read_config(
    data: Mapping[str, Any], *, stop_token_ids: tuple[int, ...] | None = None
) -> InklingConfig:
    """Builds the configuration; see `InklingConfig.from_dict`.

    Raises:
        ConfigError: every problem of the document, then (if it reads) of its numbers.
    """
    _refuse_other_models(data)
    document = Document(data)
    document.check_keys()
    fields = _plain_fields(document)
    layers = fields.get("num_hidden_layers")
    fields["local_layer_ids"] = local_ids(document, layers)
    fields["dense_layer_count"] = dense_count(document, layers)
    fields["intermediate_size"], fields["moe_intermediate_size"] = widths(document)
    fields["stop_token_ids"] = _stop_ids(document) if stop_token_ids is None else stop_token_ids
    fields["dtype"] = _dtype(document)
    fields["mtp"] = _mtp(document)
    fields["vision"] = _vision(document)
    fields["audio"] = _audio(document)
    return _build(document, fields)


def _build(document: Document, fields: dict[str, Any]) -> InklingConfig:
    """The configuration, or one error with the document's faults and those of its numbers."""
    try:
        config = InklingConfig(**fields)
    except ConfigError as error:
        told = {problem.message for problem in document.problems}
        # a missing key is None here and has been reported as missing
        fresh = [one for one in error.problems if one.value is not None and one.message not in told]
        found = [*document.problems, *fresh] or error.problems
        raise ConfigError(found, "config.json") from None
    if document.problems:
        raise ConfigError(document.problems, "config.json")
    return config


def _refuse_other_models(data: Mapping[str, Any]) -> None:
    kind = data.get("model_type")
    kind = kind if isinstance(kind, str) else repr(kind)
    if kind in spellings.FIRST_GENERATION and isinstance(data.get("text_config"), Mapping):
        return
    key, message, remedy = "model_type", "is not an Inkling model", "expected 'inkling_mm_model'"
    if kind in spellings.SECOND_GENERATION:
        message, remedy = "second generation: not yet", "use Inkling or Inkling-Small"
    elif kind == "inkling_text":
        message = "a text-only save has no published tensor names"
        remedy = "save the top-level multimodal class, which writes 'inkling_mm_model'"
    elif kind in spellings.FIRST_GENERATION:
        key, kind = "text_config", data.get("text_config")
        message, remedy = "is missing or no object", "give the whole document"
    raise ConfigError([Problem(key, kind, message, remedy)], "config.json")


def _plain_fields(document: Document) -> dict[str, Any]:
    fields = {name: document.required(keys) for name, keys in spellings.NAMES.items()}
    for name, (keys, default) in spellings.DEFAULTED.items():
        fields[name] = document.optional(keys, default)
    if fields["unpadded_vocab_size"] is None:
        fields["unpadded_vocab_size"] = fields["vocab_size"]
    return fields


def _stop_ids(document: Document) -> tuple[int, ...]:
    """The document's own ids; `text_config`'s count only where transformers did not default it.

    transformers writes eos 2 into every `text_config` that never set one, so 2 there means
    nothing; a real 2 is set at the top level.
    """
    top = document.top.get("eos_token_id")
    inner = document.text.get("eos_token_id")
    chosen = inner if top is None and inner != 2 else top
    ids = [] if chosen is None else chosen if isinstance(chosen, list) else [chosen]
    if not ids:
        document.problem("eos_token_id", chosen, _ENDS_NOTHING, _eos_remedy(inner))
    return tuple(ids)


def _eos_remedy(inner: Any) -> str:
    remedy = "set it at the top level of config.json or in generation_config.json"
    if inner == 2:
        remedy += " (the 2 in text_config is a default that transformers writes, not a real id)"
    return remedy


def _dtype(document: Document) -> str:
    """The one name that every place which names a dtype agrees on; bfloat16 where none does."""
    named: list[tuple[str, str]] = []
    for section, values in (("text_config.", document.text), ("", document.top)):
        for key in ("dtype", "torch_dtype"):
            value = values.get(key)
            if isinstance(value, str):
                named.append((section + key, value.removeprefix("torch.")))
            elif value is not None:
                document.problem(section + key, value, "is not a name", 'write "bfloat16"')
    return document.agree(*named) or "bfloat16"


def _mtp(document: Document) -> MtpConfig | None:
    """The chain from the top-level `mtp_config` or from transformers' keys in `text_config`."""
    block = document.section("mtp_config")
    count = document.agree(
        ("mtp_config.num_nextn_predict_layers", block.get("num_nextn_predict_layers")),
        ("text_config.num_mtp_layers", document.text.get("num_mtp_layers")),
    )
    local = document.agree(
        ("mtp_config.local_layer_ids", document.ids(block, "mtp_config.local_layer_ids")),
        (
            "text_config.mtp_local_layer_ids",
            document.ids(document.text, "text_config.mtp_local_layer_ids"),
        ),
    )
    post_norm = document.agree(
        ("mtp_config.chain_hidden_post_norm", block.get("chain_hidden_post_norm")),
        ("text_config.chain_hidden_post_norm", document.text.get("chain_hidden_post_norm")),
    )
    if count is None or (is_int(count) and count == 0):
        return None
    return MtpConfig(count, tuple(local or ()), bool(post_norm))


def _vision(document: Document) -> VisionConfig | None:
    block = document.section("vision_config")
    depth = document.agree(
        ("vision_config.n_layers", block.get("n_layers")),
        ("vision_config.num_hidden_layers", block.get("num_hidden_layers")),
    )
    if depth is None:
        return None
    channels = document.agree(
        ("vision_config.n_channels", block.get("n_channels")),
        ("vision_config.num_channels", block.get("num_channels")),
    )
    return VisionConfig(
        num_layers=depth,
        patch_size=block.get("patch_size", 40),
        temporal_patch_size=block.get("temporal_patch_size", 2),
        num_channels=3 if channels is None else channels,
    )


def _audio(document: Document) -> AudioConfig | None:
    block = document.section("audio_config")
    bins = document.agree(
        ("audio_config.n_mel_bins", block.get("n_mel_bins")),
        ("audio_config.num_codebooks", block.get("num_codebooks")),
    )
    levels = document.agree(
        ("audio_config.mel_vocab_size", block.get("mel_vocab_size")),
        ("audio_config.codebook_size", block.get("codebook_size")),
    )
    if bins is None or levels is None:
        return None
    return AudioConfig(bins, levels)
