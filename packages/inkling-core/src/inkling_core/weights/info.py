"""How large a model is: parameters, bytes on disk, bytes per card. From the configuration alone.

Not a measurement: every number is a sum over the table of `names`. Given a folder that has
weights, the files are checked against that table first, so what is printed is what is there.

    active per token = all text parameters - routed experts * (E - K) / E
    bytes per card   = this rank's part of every text tensor, in the serving dtype; convs, selection
                       bias and router scale in float32. Caches and activations come on top.
                       Experts stored in MXFP8 or NVFP4 count as bf16, which they are decoded to;
                       packed, they count as stored.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from inkling_core.config import PRESETS, InklingConfig
from inkling_core.config.folder import read_json
from inkling_core.naming import suggestion
from inkling_core.weights.audit import validate
from inkling_core.weights.expert_formats import (
    FORMATS,
    as_built,
    cuts_whole_blocks,
    packed_bytes,
    stored_bytes,
)
from inkling_core.weights.manifest import INDEX, SINGLE
from inkling_core.weights.names import SKIPPED_PREFIXES, TensorSpec, all_tensors
from inkling_core.weights.rules import check_tp, rank_shape, usable_tp

if TYPE_CHECKING:
    from inkling_core.cli.settings import CheckpointInfoSettings

GIB = 1024**3


@dataclass(frozen=True)
class PartSize:
    """One part of the model: how many tensors, parameters and bytes on disk; served or not."""

    part: str
    tensors: int
    parameters: int
    disk_bytes: int
    served: bool


@dataclass(frozen=True)
class CheckpointInfo:
    """Sizes of one model. Parameters are counts, everything else is bytes."""

    name: str
    parts: tuple[PartSize, ...]
    active_parameters: int
    """Parameters that one token uses, embedding and unembedding tables included."""
    embedding_parameters: int
    card_bytes: dict[int, int]
    """Tensor-parallel size -> bytes of weights that each card holds."""
    packed_card_bytes: dict[int, int]
    """The same with experts kept as stored; empty where nothing is in a block format."""
    verified: bool
    """Whether weight files were found and agree with the configuration."""

    @property
    def parameters(self) -> int:
        """All parameters of the release, MTP and towers included."""
        return sum(part.parameters for part in self.parts)

    @property
    def disk_bytes(self) -> int:
        """All tensor bytes of the release."""
        return sum(part.disk_bytes for part in self.parts)

    @property
    def served_parameters(self) -> int:
        """Parameters that text serving loads."""
        return sum(part.parameters for part in self.parts if part.served)

    @property
    def served_bytes(self) -> int:
        """Bytes on disk of what text serving loads."""
        return sum(part.disk_bytes for part in self.parts if part.served)

    def to_dict(self) -> dict[str, Any]:
        """Everything, sums included, ready for JSON."""
        return {
            **asdict(self),
            "parameters": self.parameters,
            "disk_bytes": self.disk_bytes,
            "served_parameters": self.served_parameters,
            "served_bytes": self.served_bytes,
        }


def checkpoint_info(
    source: InklingConfig | str | Path, name: str | None = None, build: str = "bf16"
) -> CheckpointInfo:
    """Sizes of a configuration, of a preset's name, of a `config.json`, or of a folder.

    Args:
        source: what to size.
        name: shown in place of the source's own.
        build: what the routed experts are stored in, where no file says it.

    Raises:
        ConfigError: a configuration that cannot be read.
        CheckpointError: a folder whose weight files do not agree with its configuration.
        ValueError: a build given for a folder whose files say what they are.
    """
    config, tensors, verified = _resolved(source, build)
    return _sizes(config, name or _label(source), tensors, verified=verified)


def _label(source: InklingConfig | str | Path) -> str:
    if isinstance(source, InklingConfig):
        return "configuration"
    path = Path(source)
    return str(source) if path.is_file() or str(source) in PRESETS else path.resolve().name


def _resolved(
    source: InklingConfig | str | Path, build: str
) -> tuple[InklingConfig, list[TensorSpec], bool]:
    """Configuration, tensors in the format they are stored in, whether files were checked."""
    if isinstance(source, InklingConfig):
        return source, _built(source, build), False
    config, path = _config_of(source), Path(source)
    tensors = _built(config, build)
    if not any((path / file).exists() for file in (INDEX, SINGLE)):
        return config, tensors, False
    if build != "bf16":
        raise ValueError(f"build={build}: the files of {path} say what they are; leave it out")
    stored = {spec.name: spec for spec, _ in validate(path, config).tensors}
    return config, [stored.get(spec.name, spec) for spec in tensors], True


def _built(config: InklingConfig, build: str) -> list[TensorSpec]:
    layers = config.num_hidden_layers
    return [as_built(spec, build, layers) for spec in all_tensors(config)]


def _sizes(
    config: InklingConfig, name: str, tensors: list[TensorSpec], *, verified: bool
) -> CheckpointInfo:
    served = [spec for spec in tensors if spec.part not in SKIPPED_PREFIXES]
    parts = tuple(_part(part, tensors) for part in dict.fromkeys(spec.part for spec in tensors))
    text_parameters = sum(spec.size for spec in served)
    routed = sum(spec.size for spec in served if spec.part == "routed_experts")
    low = [spec for spec in served if spec.dtype in FORMATS]
    plain = [spec for spec in served if spec.dtype not in FORMATS]
    sizes = _card_sizes(config, low)
    idle = routed * (config.n_routed_experts - config.num_experts_per_tok)
    return CheckpointInfo(
        name=name,
        parts=parts,
        active_parameters=text_parameters - idle // config.n_routed_experts,
        embedding_parameters=config.vocab_size * config.hidden_size,
        card_bytes={size: _card_bytes(config, served, size) for size in sizes},
        packed_card_bytes={
            size: _card_bytes(config, plain, size) + sum(packed_bytes(one, size) for one in low)
            for size in (sizes if low else ())
        },
        verified=verified,
    )


def _part(part: str, tensors: list[TensorSpec]) -> PartSize:
    mine = [spec for spec in tensors if spec.part == part]
    return PartSize(
        part=part,
        tensors=len(mine),
        parameters=sum(spec.size for spec in mine),
        disk_bytes=sum(stored_bytes(spec) for spec in mine),
        served=part not in SKIPPED_PREFIXES,
    )


def _card_bytes(config: InklingConfig, served: list[TensorSpec], size: int) -> int:
    check_tp(config, 0, size)
    width = 4 if config.dtype == "float32" else 2
    return sum(
        prod(rank_shape(spec.shape, spec.rule, size)) * (4 if spec.held_float32 else width)
        for spec in served
    )


def _card_sizes(config: InklingConfig, low: list[TensorSpec]) -> list[int]:
    """Tensor-parallel sizes that cut neither a head nor a block of `low`'s columns."""
    return [size for size in usable_tp(config) if all(cuts_whole_blocks(one, size) for one in low)]


def parts_table(info: CheckpointInfo) -> Table:
    """Parameters and bytes by part, with the sums that a reader looks for."""
    table = Table(title=info.name, title_justify="left")
    for heading in ("part", "tensors", "parameters", "bytes on disk"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    for part in info.parts:
        label = part.part if part.served else f"{part.part} (not loaded)"
        table.add_row(label, str(part.tensors), f"{part.parameters:,}", f"{part.disk_bytes:,}")
    table.add_section()
    served = sum(part.tensors for part in info.parts if part.served)
    table.add_row("loaded", str(served), f"{info.served_parameters:,}", f"{info.served_bytes:,}")
    everything = sum(part.tensors for part in info.parts)
    table.add_row("all", str(everything), f"{info.parameters:,}", f"{info.disk_bytes:,}")
    return table


def cards_table(info: CheckpointInfo, wanted: int | None = None) -> Table:
    """Bytes of weights per card by tensor-parallel size; `wanted` is marked."""
    table = Table(title="weights per card", title_justify="left")
    packed = ("bytes, experts packed", "GiB") if info.packed_card_bytes else ()
    for heading in ("tensor parallel", "bytes", "GiB", *packed):
        table.add_column(heading, justify="right")
    for size, num_bytes in info.card_bytes.items():
        style = "bold" if size == wanted else None
        cells = [num_bytes, *([info.packed_card_bytes[size]] if packed else [])]
        shown = [text for cell in cells for text in (f"{cell:,}", f"{cell / GIB:.2f}")]
        table.add_row(str(size), *shown, style=style)
    return table


def tensors_table(tensors: list[TensorSpec]) -> Table:
    """Every tensor of a release with shape, stored dtype or format, and tensor-parallel rule."""
    table = Table(title="tensors", title_justify="left")
    for heading in ("name", "shape", "stored", "rule"):
        table.add_column(heading, overflow="fold")
    for spec in tensors:
        table.add_row(spec.name, str(list(spec.shape)), spec.dtype, str(spec.rule))
    return table


def run(settings: CheckpointInfoSettings) -> int:
    """`inkling checkpoint info`: tables on standard output, or one JSON object."""
    source = _source(settings.checkpoint)
    name = None if settings.checkpoint in PRESETS else settings.checkpoint
    info = checkpoint_info(source, name, settings.build)
    if settings.format == "json":
        json.dump(info.to_dict(), sys.stdout, indent=2)
        print()
        return 0
    console = Console()
    console.print(parts_table(info))
    without = info.active_parameters - info.embedding_parameters
    console.print(
        f"active per token: {info.active_parameters:,} ({without:,} without the embedding table)\n"
    )
    console.print(cards_table(info, settings.tensor_parallel))
    if settings.tensor_parallel not in info.card_bytes:
        sizes = ", ".join(map(str, info.card_bytes))
        raise ValueError(f"tensor_parallel={settings.tensor_parallel}: usable sizes are {sizes}")
    if settings.tensors:
        console.print(tensors_table(_resolved(source, settings.build)[1]))
    return 0


def _source(checkpoint: str) -> str | Path:
    if checkpoint in PRESETS or Path(checkpoint).is_file():
        return checkpoint
    from inkling_core.embedded import checkpoint_folder

    try:
        return checkpoint_folder(checkpoint)
    except FileNotFoundError as error:
        known = [*PRESETS, "nano"]
        raise ValueError(f"{error}; presets: {suggestion(checkpoint, known)}") from None


def _config_of(source: str | Path) -> InklingConfig:
    if str(source) in PRESETS:
        return PRESETS[str(source)]
    path = Path(source)
    if path.is_file():
        return InklingConfig.from_dict(read_json(path))
    return InklingConfig.from_checkpoint(path)
