"""A checkpoint folder against what its configuration says it must hold, before any tensor is read.

Every fault of the folder comes out in one `CheckpointError`: damaged files, missing, unexpected,
misshapen and mistyped tensors. What is left unread on purpose is counted, not hidden.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.filesize import decimal

from inkling_core.naming import near_name
from inkling_core.weights.errors import CheckpointError
from inkling_core.weights.expert_formats import StoredPart, format_of, stored_parts
from inkling_core.weights.header import StoredTensor
from inkling_core.weights.manifest import Manifest, read_manifest
from inkling_core.weights.names import SKIPPED_PREFIXES, TensorSpec, text_tensors

if TYPE_CHECKING:
    from inkling_core.config import InklingConfig

log = logging.getLogger("inkling_core.weights")

QUANTISED = re.compile(r"weight[._]\w+$")  # w13_weight_scale, w13_weight.scale2, weight_packed
FOREIGN = {
    "model.language_model.": "the in-memory names of transformers",
    "model.layers.": "the names of a text-only save of transformers",
    "language_model.": "the in-memory names of transformers",
    "base_model.model.": "a LoRA adapter",
}


@dataclass(frozen=True)
class Skipped:
    """A part left unread on purpose: its tensors and bytes on disk."""

    part: str
    tensors: int
    num_bytes: int

    def __str__(self) -> str:
        return f"{self.part}: {self.tensors} tensors, {decimal(self.num_bytes)}"


@dataclass(frozen=True)
class Audit:
    """A sound checkpoint: each expected weight with its places, and what is skipped.

    A weight has one place, or one for each of its `expert_formats.stored_parts`; its `dtype` says
    what it is stored in.
    """

    directory: Path
    tensors: tuple[tuple[TensorSpec, tuple[StoredTensor, ...]], ...]
    skipped: tuple[Skipped, ...]
    remarks: tuple[str, ...]


def validate(directory: str | Path, config: InklingConfig) -> Audit:
    """Checks the whole folder; opens headers only.

    Raises:
        CheckpointError: lists every problem.
    """
    folder = Path(directory)
    manifest = read_manifest(folder)
    specs = [_as_stored(spec, manifest) for spec in text_tensors(config)]
    expected = {part.name: part for spec in specs for part in stored_parts(spec)}
    problems = list(manifest.problems)
    if manifest.tensors:
        problems += _name_problems(manifest, expected)
        problems += _form_problems(manifest, expected)
    if problems:
        raise CheckpointError(folder, problems)
    pairs = tuple(
        (spec, tuple(manifest.tensors[part.name] for part in stored_parts(spec))) for spec in specs
    )
    found = Audit(folder, pairs, tuple(_skipped(manifest)), tuple(manifest.remarks))
    for line in (*found.remarks, *(f"skipped on purpose, {one}" for one in found.skipped)):
        log.info("%s: %s", folder.name, line)
    return found


def _as_stored(spec: TensorSpec, manifest: Manifest) -> TensorSpec:
    """`spec` in the format that its tensor in the file has."""
    stored = manifest.tensors.get(spec.name)
    return spec if stored is None else replace(spec, dtype=format_of(spec, stored.dtype))


def _is_skipped(name: str) -> bool:
    return name.startswith(tuple(SKIPPED_PREFIXES.values()))


def _name_problems(manifest: Manifest, expected: dict[str, StoredPart]) -> list[str]:
    found = {name for name in manifest.tensors if not _is_skipped(name)}
    if not found & set(expected):
        return [_nothing_fits(found, expected)]
    missing = [name for name in expected if name not in found]
    unexpected = sorted(found - set(expected))
    problems = []
    for name in missing:
        near = near_name(name, unexpected)
        hint = f"; is {near!r} meant?" if near else ""
        problems.append(f"{name}: missing, expected {list(expected[name].shape)}{hint}")
    for name in unexpected:
        shape = list(manifest.tensors[name].shape)
        problems.append(f"{name}: unexpected, {shape}{_unexpected_hint(name, missing, expected)}")
    return problems


def _unexpected_hint(name: str, missing: list[str], expected: dict[str, StoredPart]) -> str:
    if QUANTISED.search(name):
        return "; scales are read beside MXFP8 (F8_E4M3) or NVFP4 (U8) codes of routed experts only"
    near = near_name(name, missing)
    if near:
        return f"; is it {near!r}?"
    layers = sum(key.endswith(".attn_norm.weight") for key in expected)
    head = name.removeprefix("model.llm.layers.").split(".")[0]
    if head.isdigit() and int(head) >= layers:
        return f"; config.json says num_hidden_layers = {layers}"
    return ""


def _nothing_fits(found: set[str], expected: dict[str, StoredPart]) -> str:
    first = min(found, default=None)
    for prefix, meaning in FOREIGN.items():
        if first is not None and any(name.startswith(prefix) for name in found):
            sample = min(name for name in found if name.startswith(prefix))
            return (
                f"none of the {len(expected)} expected tensors: {sample!r} and others are {meaning}"
                "; save the top-level multimodal class, which writes names like "
                f"{next(iter(expected))!r}"
            )
    return (
        f"none of the {len(expected)} expected tensors ({next(iter(expected))!r}, ...) "
        f"among {len(found)} found ({first!r}, ...): another model's checkpoint"
    )


def _form_problems(manifest: Manifest, expected: dict[str, StoredPart]) -> list[str]:
    problems = []
    for name, part in expected.items():
        stored = manifest.tensors.get(name)
        if stored is None:
            continue
        if stored.shape != part.shape:
            problems.append(
                f"{name}: shape {list(stored.shape)}, config.json implies {list(part.shape)}"
            )
        if stored.dtype not in part.dtypes:
            problems.append(
                f"{name}: dtype {stored.dtype}, expected {' or '.join(sorted(part.dtypes))}"
            )
    return problems


def _skipped(manifest: Manifest) -> list[Skipped]:
    skipped = []
    for part, prefix in SKIPPED_PREFIXES.items():
        sizes = [one.num_bytes for name, one in manifest.tensors.items() if name.startswith(prefix)]
        if sizes:
            skipped.append(Skipped(part, len(sizes), sum(sizes)))
    return skipped
