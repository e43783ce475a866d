"""Expert weights kept as their file stores them, decoded one expert at a time when asked for.

    weights[expert]  ->  [R, C], rounded to bf16 as the format says, then in `dtype`

It stands where `inkling_core.ops.experts` expects a weight `[E, R, C]`, which that op only ever
indexes by expert. A kernel that wants one dense tensor cannot take it, nor can a Gaudi: the e4m3 of
Gaudi 2 ends at 240, since its largest exponent means infinity and NaN. Not the reading and not the
check of the scales (`inkling_core.weights`): what is in here is known to be sound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inkling_core.ops.mxfp8 import dequantize_mxfp8
from inkling_core.ops.nvfp4 import dequantize_nvfp4

DECODE = {"MXFP8": dequantize_mxfp8, "NVFP4": dequantize_nvfp4}


@dataclass(frozen=True, eq=False)
class PackedExperts:
    """A weight `[E, R, C]` in a block format.

    Args:
        format: `MXFP8` or `NVFP4`.
        parts: codes, scales and (NVFP4) amax and denominator, `[E, ...]` each; see
            `inkling_core.weights.expert_formats`.
        dtype: of a decoded expert. bf16 loses nothing; float32 holds the same values.
    """

    format: str
    parts: tuple[Tensor, ...]
    dtype: torch.dtype = torch.bfloat16

    @property
    def shape(self) -> torch.Size:
        """Of the weight, not of its codes."""
        *outer, columns = self.parts[0].shape
        return torch.Size((*outer, columns * (2 if self.format == "NVFP4" else 1)))

    @property
    def nbytes(self) -> int:
        """Bytes held, scales included."""
        return sum(part.nbytes for part in self.parts)

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, expert: int) -> Tensor:
        parts = (part[expert] for part in self.parts)
        return DECODE[self.format](*parts, torch.bfloat16).to(self.dtype)

    def to(self, target: torch.device | torch.dtype) -> PackedExperts:
        """The same on another device, or decoding to another dtype.

        Raises:
            ValueError: for a Gaudi, where codes and scales beyond 240 would be infinite.
        """
        if isinstance(target, torch.dtype):
            return replace(self, dtype=target)
        if target.type == "hpu":
            raise ValueError(
                f"packed {self.format} experts cannot go to {target}: e4m3 ends at 240 on Gaudi 2, "
                "theirs at 448; leave pack_experts out, and they are decoded before they go there"
            )
        return replace(self, parts=tuple(part.to(target) for part in self.parts))
