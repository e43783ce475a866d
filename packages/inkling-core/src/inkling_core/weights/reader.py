"""Reads tensors or a rank's part of them from memory-mapped safetensors files, one at a time.

It trusts an `Audit` (names, shapes and dtypes are right) and knows no progress bar: `loader` does.
Files are mapped, so what is not read is not loaded. What is handed out owns its memory: a view of
the mapping would change, or crash the process, when the file is replaced under it. So beyond the
tensors handed out, at most the pages of the one being copied are held.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from inkling_core.packed_experts import PackedExperts
from inkling_core.weights.audit import Audit
from inkling_core.weights.errors import CheckpointError
from inkling_core.weights.expert_formats import FORMATS
from inkling_core.weights.expert_reader import ExpertReader
from inkling_core.weights.header import StoredTensor
from inkling_core.weights.names import TensorSpec
from inkling_core.weights.rules import rank_range

Pairs = list[tuple[TensorSpec, tuple[StoredTensor, ...]]]


def read_tensors(
    audit: Audit, dtype: torch.dtype, tp_rank: int, tp_size: int, *, pack: bool = False
) -> Iterator[tuple[TensorSpec, Tensor | PackedExperts]]:
    """Yields each tensor's part for `tp_rank`, file by file, contiguous.

    Tensors that are held in float32 (convs, selection bias, router scale) come in float32, the
    others in `dtype`, whatever they are stored in. Experts in a block format are rounded to bf16
    before; with `pack` they come as stored.

    Raises:
        CheckpointError: a file that passed the audit can no longer be read, or scales of experts
            that cannot be right.
    """
    for path, pairs in _by_file(audit).items():
        try:
            with safe_open(path, framework="pt") as file:
                for spec, stored in pairs:
                    if spec.dtype in FORMATS:
                        with ExpertReader(spec, stored, tp_rank, tp_size) as experts:
                            yield spec, experts.packed(dtype) if pack else experts.dense(dtype)
                        continue
                    part = _read_part(file, spec, tp_rank, tp_size)
                    held = torch.float32 if spec.held_float32 else dtype
                    yield spec, part.to(held, copy=True, memory_format=torch.contiguous_format)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(audit.directory, [f"{path.name}: {error}"]) from error


def _by_file(audit: Audit) -> dict[Path, Pairs]:
    files: dict[Path, Pairs] = {}
    for spec, stored in audit.tensors:
        files.setdefault(stored[0].path, []).append((spec, stored))
    return files


def _read_part(file: safe_open, spec: TensorSpec, tp_rank: int, tp_size: int) -> Tensor:
    part = rank_range(spec.shape, spec.rule, tp_rank, tp_size)
    if part is None:
        return file.get_tensor(spec.name)
    slices = [slice(None)] * len(spec.shape)
    slices[part.dim] = slice(part.start, part.stop)
    return file.get_slice(spec.name)[tuple(slices)]
