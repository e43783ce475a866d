"""Which layers are local, which are dense, and how wide their MLPs are: keys with two spellings.

published: local_layer_ids, dense_mlp_idx, intermediate_size (expert), dense_intermediate_size
transformers: layer_types, mlp_layer_types, moe_intermediate_size, intermediate_size (dense)
"""

from __future__ import annotations

from typing import Any

from inkling_core.config.document import Document

_ATTENTION = {"hybrid_sliding": True, "hybrid": False}
_MLP = {"dense": True, "sparse": False}


def local_ids(document: Document, layers: Any) -> tuple[int, ...]:
    """Ids of local layers from either spelling; both may be given if they agree."""
    ids = document.ids(document.text, "text_config.local_layer_ids")
    flags = _flags(document, "layer_types", _ATTENTION, layers)
    derived = None if flags is None else [layer for layer, local in enumerate(flags) if local]
    chosen = document.agree(
        ("text_config.local_layer_ids", ids),
        ("text_config.layer_types", derived),
    )
    given = document.text.get("local_layer_ids"), document.text.get("layer_types")
    if given == (None, None):
        document.problem(
            "text_config.local_layer_ids",
            None,
            "is missing",
            "set local_layer_ids or layer_types (engines disagree on the default)",
        )
    return tuple(chosen or ())


def dense_count(document: Document, layers: Any) -> int:
    """How many leading layers are dense, from either spelling; 0 where neither is given."""
    flags = _flags(document, "mlp_layer_types", _MLP, layers)
    count = None
    if flags is not None:
        count = sum(flags)
        if any(flags[count:]):
            document.problem(
                "text_config.mlp_layer_types",
                document.text["mlp_layer_types"],
                "has a dense layer after a sparse one",
                "dense layers come first in every released model",
            )
    chosen = document.agree(
        ("text_config.dense_mlp_idx", document.text.get("dense_mlp_idx")),
        ("text_config.mlp_layer_types", count),
    )
    return 0 if chosen is None else chosen


def widths(document: Document) -> tuple[Any, Any]:
    """(dense width, expert width); `intermediate_size` is whichever of the two is not named."""
    plain = document.text.get("intermediate_size")
    dense = document.text.get("dense_intermediate_size")
    expert = document.text.get("moe_intermediate_size")
    if dense is not None and expert is not None:
        if plain is not None and plain not in (dense, expert):
            document.problem(
                "text_config.intermediate_size",
                plain,
                f"contradicts dense_intermediate_size = {dense} and "
                f"moe_intermediate_size = {expert}",
                "remove it",
            )
        return dense, expert
    if plain is not None and dense is not None:
        return dense, plain
    if plain is not None and expert is not None:
        return plain, expert
    document.problem(
        "text_config.intermediate_size",
        plain,
        "leaves the dense or the expert width open",
        "set intermediate_size with dense_intermediate_size (published) or with "
        "moe_intermediate_size (transformers)",
    )
    return None, None


def _flags(
    document: Document, key: str, meaning: dict[str, bool], layers: Any
) -> list[bool] | None:
    kinds = document.text.get(key)
    if kinds is None:
        return None
    if not isinstance(kinds, (list, tuple)):
        document.problem(f"text_config.{key}", kinds, "must be a list", "one name a layer")
        return None
    unknown = sorted({str(kind) for kind in kinds if str(kind) not in meaning})
    if unknown or len(kinds) != layers:
        document.problem(
            f"text_config.{key}",
            unknown or f"{len(kinds)} entries",
            f"must name one of {list(meaning)} for each of num_hidden_layers = {layers}",
            "give one name a layer",
        )
        return None
    return [meaning[kind] for kind in kinds]
