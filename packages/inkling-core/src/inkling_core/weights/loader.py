"""Loads the language model of a checkpoint: all of it, or tensor by tensor, for one rank.

The folder is audited in full before the first tensor is read. Layout stays as published: w13 is
interleaved, names are the published ones without `model.llm.`. MTP blocks and towers stay on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inkling_core.weights.audit import Audit, validate
from inkling_core.weights.header import DTYPE_BYTES
from inkling_core.weights.progress import LoadProgress
from inkling_core.weights.reader import read_tensors
from inkling_core.weights.rules import check_tp, rank_shape

if TYPE_CHECKING:
    from inkling_core.config import InklingConfig


def load(
    directory: str | Path,
    config: InklingConfig,
    *,
    dtype: torch.dtype = torch.float32,
    tp_rank: int = 0,
    tp_size: int = 1,
    progress: str = "auto",
) -> dict[str, Tensor]:
    """All tensors of the language model, by published name without `model.llm.`.

    Args:
        directory: checkpoint folder.
        config: its configuration (`InklingConfig.from_checkpoint`).
        dtype: of everything but convs, selection bias and router scale, which are float32.
        tp_rank: which part to read when the model is cut over `tp_size` ranks.
        tp_size: 1..8; see `rules` for what each rank holds.
        progress: see `LoadProgress`.

    Raises:
        CheckpointError: lists every problem of the folder.
        ShardingError: lists every size that does not divide over the ranks.
    """
    tensors = stream(
        directory, config, dtype=dtype, tp_rank=tp_rank, tp_size=tp_size, progress=progress
    )
    return dict(tensors)


def stream(
    directory: str | Path,
    config: InklingConfig,
    *,
    dtype: torch.dtype = torch.float32,
    tp_rank: int = 0,
    tp_size: int = 1,
    progress: str = "auto",
) -> Iterator[tuple[str, Tensor]]:
    """As `load`, one (name, tensor) at a time; the checks are done when this returns."""
    check_tp(config, tp_rank, tp_size)
    checked = validate(directory, config)
    bar = LoadProgress(
        f"loading {checked.directory.name}", _bytes_to_read(checked, tp_size), progress
    )
    return _read(checked, bar, dtype, tp_rank, tp_size)


def _read(
    checked: Audit, bar: LoadProgress, dtype: torch.dtype, tp_rank: int, tp_size: int
) -> Iterator[tuple[str, Tensor]]:
    widths = {spec.name: DTYPE_BYTES[stored.dtype] for spec, stored in checked.tensors}
    with bar:
        for spec, tensor in read_tensors(checked, dtype, tp_rank, tp_size):
            bar.advance(tensor.numel() * widths[spec.name])
            yield spec.key, tensor
            del tensor  # the caller alone decides how long it lives


def _bytes_to_read(checked: Audit, tp_size: int) -> int:
    return sum(
        prod(rank_shape(spec.shape, spec.rule, tp_size)) * DTYPE_BYTES[stored.dtype]
        for spec, stored in checked.tensors
    )
