"""Loads the language model of a checkpoint: all of it, or tensor by tensor, for one rank.

The folder is audited in full before the first tensor is read. Layout stays as published: w13 is
interleaved, names are the published ones without `model.llm.`. MTP blocks and towers stay on disk.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.filesize import decimal
from torch import Tensor

from inkling_core.packed_experts import PackedExperts
from inkling_core.weights.audit import Audit, validate
from inkling_core.weights.expert_formats import FORMATS, packed_bytes
from inkling_core.weights.header import DTYPE_BYTES, StoredTensor
from inkling_core.weights.names import TensorSpec
from inkling_core.weights.progress import LoadProgress
from inkling_core.weights.reader import read_tensors
from inkling_core.weights.rules import check_tp, rank_shape

if TYPE_CHECKING:
    from inkling_core.config import InklingConfig

log = logging.getLogger("inkling_core.weights")


def load(
    directory: str | Path,
    config: InklingConfig,
    *,
    dtype: torch.dtype = torch.float32,
    tp_rank: int = 0,
    tp_size: int = 1,
    progress: str = "auto",
    pack_experts: bool = False,
) -> dict[str, Tensor | PackedExperts]:
    """All tensors of the language model, by published name without `model.llm.`.

    Args:
        directory: checkpoint folder.
        config: its configuration (`InklingConfig.from_checkpoint`).
        dtype: of everything but convs, selection bias and router scale, which are float32.
        tp_rank: which part to read when the model is cut over `tp_size` ranks.
        tp_size: 1..8; see `rules` for what each rank holds.
        progress: see `LoadProgress`.
        pack_experts: keep experts that are stored in MXFP8 or NVFP4 as they are, to be decoded
            one by one when used; otherwise they are decoded to bf16 while they are read.

    Raises:
        CheckpointError: lists every problem of the folder.
        ShardingError: lists every size that does not divide over the ranks.
    """
    tensors = stream(
        directory,
        config,
        dtype=dtype,
        tp_rank=tp_rank,
        tp_size=tp_size,
        progress=progress,
        pack_experts=pack_experts,
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
    pack_experts: bool = False,
) -> Iterator[tuple[str, Tensor | PackedExperts]]:
    """As `load`, one (name, tensor) at a time; the checks are done when this returns.

    Logs what experts in a block format take, packed and decoded.
    """
    check_tp(config, tp_rank, tp_size)
    checked = validate(directory, config)
    _log_experts(checked, dtype, tp_size, pack_experts)
    sizes = {spec.name: _bytes_to_read(spec, stored, tp_size) for spec, stored in checked.tensors}
    bar = LoadProgress(f"loading {checked.directory.name}", sum(sizes.values()), progress)
    parts = read_tensors(checked, dtype, tp_rank, tp_size, pack=pack_experts)
    return _advancing(bar, sizes, parts)


def _log_experts(checked: Audit, dtype: torch.dtype, tp_size: int, pack: bool) -> None:
    low = [spec for spec, _ in checked.tensors if spec.dtype in FORMATS]
    if not low:
        return
    kinds = ", ".join(f"{n} in {kind}" for kind, n in Counter(one.dtype for one in low).items())
    packed = decimal(sum(packed_bytes(spec, tp_size) for spec in low))
    elements = sum(prod(rank_shape(spec.shape, spec.rule, tp_size)) for spec in low)
    dense = f"{decimal(elements * dtype.itemsize)} in {str(dtype).removeprefix('torch.')}"
    how = f"kept packed, {packed} (decoded: {dense})" if pack else f"decoded, {dense} from {packed}"
    log.info("%s: expert weights %s; %s", checked.directory.name, kinds, how)


def _advancing(
    bar: LoadProgress,
    sizes: dict[str, int],
    parts: Iterator[tuple[TensorSpec, Tensor | PackedExperts]],
) -> Iterator[tuple[str, Tensor | PackedExperts]]:
    with bar:
        for spec, tensor in parts:
            bar.advance(sizes[spec.name])
            yield spec.key, tensor
            del tensor  # the caller alone decides how long it lives


def _bytes_to_read(spec: TensorSpec, stored: tuple[StoredTensor, ...], tp_size: int) -> int:
    if spec.dtype in FORMATS:
        return packed_bytes(spec, tp_size)
    return prod(rank_shape(spec.shape, spec.rule, tp_size)) * DTYPE_BYTES[stored[0].dtype]
