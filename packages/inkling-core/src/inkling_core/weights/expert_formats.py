"""How routed-expert weights lie in a file in MXFP8 and NVFP4: tensors, shapes, cuts. No torch.

A weight `[E, R, C]` called W is stored as (suffix of the name, shape, dtype):

    MXFP8   W                             [E, R, C]      e4m3
            W_scale                       [E, R, C/32]   a byte, E8M0
    NVFP4   W                             [E, R, C/2]    two e2m1 codes a byte
            W_scale                       [E, R, C/16]   e4m3
            W_amax                        [E]            float32
            W_outer_scale_denominator     [E]            float32
    plain   W                             [E, R, C]      bf16 or float32

The rows of a scale are those of its weight, interleaved where the weight's are. The format of a
weight is read off the dtype of W in the file, never off the configuration: releases are known to
declare a grid of 32 x 32 and to store scales of 1 x 32.

Not the meaning of the codes (`ops.mxfp8`, `ops.nvfp4`) and not the reading (`expert_reader`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from inkling_core.weights.errors import ShardingError
from inkling_core.weights.header import DTYPE_BYTES
from inkling_core.weights.names import TensorSpec
from inkling_core.weights.rules import Range, rank_range

MXFP8, NVFP4 = "MXFP8", "NVFP4"
PLAIN_DTYPES = ("BF16", "F32")
_FORMAT_OF_CODES = {"F8_E4M3": MXFP8, "U8": NVFP4}
_ONE_AN_EXPERT = 0


@dataclass(frozen=True)
class _Row:
    suffix: str
    columns: int
    """Columns of the weight that one element stands for; 0 for one element an expert."""
    dtypes: tuple[str, ...]
    """Accepted; the first is what a release has."""


_ROWS = {
    MXFP8: (
        _Row("", 1, ("F8_E4M3",)),
        _Row("_scale", 32, ("U8", "F8_E8M0")),
    ),
    NVFP4: (
        _Row("", 2, ("U8",)),
        _Row("_scale", 16, ("F8_E4M3",)),
        _Row("_amax", _ONE_AN_EXPERT, PLAIN_DTYPES[::-1]),
        _Row("_outer_scale_denominator", _ONE_AN_EXPERT, PLAIN_DTYPES[::-1]),
    ),
}
FORMATS = tuple(_ROWS)


@dataclass(frozen=True)
class StoredPart:
    """One tensor of a file: all of a plain weight, or codes or scales of one in a block format."""

    name: str
    shape: tuple[int, ...]
    dtypes: tuple[str, ...]
    """Accepted dtypes; the first is what a release has."""
    columns: int = 1

    @property
    def num_bytes(self) -> int:
        """In the dtype of a release."""
        return prod(self.shape) * DTYPE_BYTES[self.dtypes[0]]


def format_of(spec: TensorSpec, stored_dtype: str) -> str:
    """What a weight whose tensor W has `stored_dtype` is stored in; only routed experts vary."""
    low = _FORMAT_OF_CODES.get(stored_dtype) if spec.part == "routed_experts" else None
    return low or spec.dtype


def as_built(spec: TensorSpec, build: str, num_layers: int) -> TensorSpec:
    """`spec` in the format that a release of the kind `build` stores it in."""
    if build == "bf16" or spec.part != "routed_experts":
        return spec
    layer = int(spec.key.split(".")[1])
    late = layer >= num_layers * 5 // 6
    return replace(spec, dtype=MXFP8 if build == "mxfp8" or late else NVFP4)


def stored_parts(spec: TensorSpec) -> tuple[StoredPart, ...]:
    """The tensors that `spec` is stored in, the one that bears its name first."""
    if spec.dtype not in FORMATS:
        accepted = (spec.dtype, *(dtype for dtype in PLAIN_DTYPES if dtype != spec.dtype))
        return (StoredPart(spec.name, spec.shape, accepted),)
    *outer, columns = spec.shape
    return tuple(
        StoredPart(
            spec.name + row.suffix,
            (*outer, columns // row.columns) if row.columns else spec.shape[:1],
            row.dtypes,
            row.columns,
        )
        for row in _ROWS[spec.dtype]
    )


def stored_bytes(spec: TensorSpec) -> int:
    """Bytes on disk, scales included."""
    return sum(part.num_bytes for part in stored_parts(spec))


def part_range(spec: TensorSpec, part: StoredPart, rank: int, size: int) -> Range | None:
    """What `rank` of `size` reads of `part`; None means all of it.

    Raises:
        ShardingError: the cut runs through a block of columns.
    """
    whole = rank_range(spec.shape, spec.rule, rank, size)
    if whole is None or part.columns == _ONE_AN_EXPERT:
        return None
    if whole.dim < len(spec.shape) - 1:
        return whole
    if whole.start % part.columns or whole.stop % part.columns:
        raise ShardingError(
            [
                f"{spec.name}: {whole.stop - whole.start} columns a rank cut through a block of "
                f"{part.columns} ({spec.dtype}); use a smaller tp_size than {size}"
            ]
        )
    return Range(whole.dim, whole.start // part.columns, whole.stop // part.columns)


def cuts_whole_blocks(spec: TensorSpec, size: int) -> bool:
    """Whether each of `size` ranks gets whole blocks of columns."""
    try:
        for part in stored_parts(spec):
            part_range(spec, part, 0, size)
    except ShardingError:
        return False
    return True


def packed_bytes(spec: TensorSpec, size: int) -> int:
    """Bytes of one rank's part as stored, scales included.

    Raises:
        ShardingError: as `part_range`.
    """
    total = 0
    for part in stored_parts(spec):
        shape = list(part.shape)
        if (piece := part_range(spec, part, 0, size)) is not None:
            shape[piece.dim] = piece.stop - piece.start
        total += prod(shape) * DTYPE_BYTES[part.dtypes[0]]
    return total
