"""The head of one safetensors file, read and checked without touching its data. No torch.

    8 bytes little-endian N | N bytes of JSON {name: {dtype, shape, data_offsets}} | data

A file is whole when its tensors tile the data exactly: no gap, no overlap, nothing beyond the end.
So a download cut short is found here, before any tensor is read. The data itself is `reader`'s.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

MAX_HEADER_BYTES = 100_000_000  # what the safetensors library itself accepts
MAX_RANK = 8

DTYPE_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
}


@dataclass(frozen=True)
class StoredTensor:
    """Where one tensor lies: its file, dtype, shape and number of bytes."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int


class HeaderError(Exception):
    """A file that is no whole safetensors file. `problems` lists what is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file.

    Raises:
        HeaderError: unreadable, no safetensors header, too large a header, or tensors that do
            not tile the data (truncated or overlong file).
    """
    if not path.is_file():  # opening a pipe would wait for ever
        raise HeaderError([f"{path.name}: no regular file"])
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            _check_length(path, length, size)
            raw = file.read(length)
    except OSError as error:
        raise HeaderError([f"{path.name}: cannot be read ({error.strerror})"]) from None
    entries = _parse(path, raw)
    tensors, spans, problems = {}, [], []
    for name, entry in entries.items():
        try:
            tensors[name], span = _entry(path, name, entry)
            spans.append((*span, name))
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"{path.name}: entry {name!r} is malformed ({error})")
    if not problems:
        problems += _tiling(path, spans, size - 8 - length)
    if problems:
        raise HeaderError(problems)
    return tensors


def _check_length(path: Path, length: int, size: int) -> None:
    if size < 8:
        raise HeaderError([f"{path.name}: {size} bytes, truncated before its header"])
    if length > MAX_HEADER_BYTES:
        raise HeaderError(
            [
                f"{path.name}: claims a header of {length:,} bytes (limit {MAX_HEADER_BYTES:,}); "
                "not a safetensors file"
            ]
        )
    if 8 + length > size:
        raise HeaderError(
            [f"{path.name}: truncated inside its header ({size:,} of {8 + length:,} bytes)"]
        )


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise HeaderError([f"{path.name}: header is not JSON ({error})"]) from None
    if not isinstance(entries, dict):
        raise HeaderError([f"{path.name}: header is not a JSON object"])
    entries.pop("__metadata__", None)
    return entries


def _entry(path: Path, name: str, entry: dict[str, Any]) -> tuple[StoredTensor, tuple[int, int]]:
    shape = tuple(entry["shape"])
    start, end = entry["data_offsets"]
    counts = (*shape, start, end)
    if not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in counts):
        raise ValueError("shape and data_offsets must be counts")
    if len(shape) > MAX_RANK:
        raise ValueError(f"{len(shape)} dimensions, at most {MAX_RANK}")
    dtype = entry["dtype"]
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"dtype {dtype!r} is not known")
    if end - start != prod(shape) * DTYPE_BYTES[dtype]:
        raise ValueError(f"{end - start} bytes for {dtype} {list(shape)}")
    return StoredTensor(path, dtype, shape, end - start), (start, end)


def _tiling(path: Path, spans: list[tuple[int, int, str]], data_bytes: int) -> list[str]:
    """Problems with the layout: the spans must cover 0..data_bytes once."""
    position = 0
    for start, end, name in sorted(spans):
        if start != position:
            kind = "overlaps" if start < position else "leaves a gap after"
            return [f"{path.name}: {name!r} at byte {start} {kind} byte {position}"]
        position = end
    if position > data_bytes:
        cut = [name for _, end, name in spans if end > data_bytes]
        return [
            f"{path.name}: truncated, {data_bytes:,} of {position:,} data bytes; "
            f"{len(cut)} tensor(s) cut: {', '.join(sorted(cut)[:3])}"
        ]
    if position < data_bytes:
        return [f"{path.name}: {data_bytes - position:,} bytes beyond its last tensor"]
    return []
