"""Reads routed-expert weights in MXFP8 or NVFP4: decoded to bf16 on the way, or kept as stored.

Decoding goes expert by expert, so that beside the weight handed out one expert is held, never the
whole packed weight or a float32 copy of it. The scales of every expert are checked
(`expert_scales`) before a value of it is handed out, in both modes. Trusts an `Audit`.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from inkling_core.packed_experts import PackedExperts
from inkling_core.weights.errors import CheckpointError
from inkling_core.weights.expert_formats import part_range, stored_parts
from inkling_core.weights.expert_scales import PROBLEM
from inkling_core.weights.header import StoredTensor
from inkling_core.weights.names import TensorSpec
from inkling_core.weights.rules import rank_shape


class ExpertReader:
    """One weight `[E, R, C]` of a checkpoint, a rank's part of it, expert by expert.

    A context manager: the files stay mapped while it is open.

    Args:
        spec: the weight, its `dtype` a block format.
        stored: where its parts lie, in the order of `stored_parts`.
        tp_rank, tp_size: which part.
    """

    def __init__(
        self, spec: TensorSpec, stored: tuple[StoredTensor, ...], tp_rank: int, tp_size: int
    ) -> None:
        self.spec = spec
        self.whole = rank_shape(spec.shape, spec.rule, tp_size) == spec.shape
        self.shape = rank_shape(spec.shape, spec.rule, tp_size)
        parts = stored_parts(spec)
        self._names = [part.name for part in parts]
        self._paths = [one.path for one in stored]
        self._ranges = [part_range(spec, part, tp_rank, tp_size) for part in parts]
        self._files = ExitStack()

    def __enter__(self) -> ExpertReader:
        opened: dict[Path, Any] = {}
        for path in self._paths:
            if path not in opened:
                opened[path] = self._files.enter_context(safe_open(path, framework="pt"))
        self._slices = [
            opened[path].get_slice(name)
            for path, name in zip(self._paths, self._names, strict=True)
        ]
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def dense(self, dtype: torch.dtype) -> Tensor:
        """`[E, R, C]`: every expert rounded to bf16, then in `dtype`.

        Raises:
            CheckpointError: scales that are NaN or do not belong to the codes.
        """
        out_ERC = torch.empty(self.shape, dtype=dtype)
        for expert in range(len(out_ERC)):
            parts = self._read(slice(expert, expert + 1))
            self._check(expert, tuple(part[0] for part in parts))
            out_ERC[expert] = PackedExperts(self.spec.dtype, parts)[0]
        return out_ERC

    def packed(self, dtype: torch.dtype) -> PackedExperts:
        """The weight as stored, to be decoded to `dtype`. Raises as `dense`."""
        parts = tuple(part.clone() for part in self._read(slice(None)))
        for expert in range(self.shape[0]):
            self._check(expert, tuple(part[expert] for part in parts))
        return PackedExperts(self.spec.dtype, parts, dtype)

    def _check(self, expert: int, parts: tuple[Tensor, ...]) -> None:
        problem = PROBLEM[self.spec.dtype](*parts, whole=self.whole)
        if problem:
            found = f"{self.spec.name}: expert {expert} ({self.spec.dtype}): {problem}"
            raise CheckpointError(self._paths[0].parent, [found])

    def _read(self, experts: slice) -> tuple[Tensor, ...]:
        """This rank's piece of each part, for some experts: `[e, ...]` each."""
        parts = []
        for stored, piece in zip(self._slices, self._ranges, strict=True):
            where = [experts]
            if piece is not None:
                where += [slice(None)] * (piece.dim - 1) + [slice(piece.start, piece.stop)]
            parts.append(stored[tuple(where)].contiguous())
        return tuple(parts)
