"""vLLM's CPU kernels, where this process holds them and the processor can run them.

Not loaded by itself: the server's model calls `load` once, and until then every op of this folder
runs on plain torch (`inkling generate` needs no vLLM). Each question is answered for a dtype and
shape, so that an op and the packing of its weights decide alike.

    experts   cpu_fused_moe: bf16 only; tiles of AMX where there are any, else AVX-512
    rms_norm  rms_norm: bf16 only; float32 inside; called with a weight of ones, because the law
              rounds the normalised value before it weighs it

A float32 model takes none of them: its tokens are held to the reference one by one.
"""

from __future__ import annotations

from types import ModuleType

import torch

TILE = 32  # widths must be whole tiles (norm: whole vectors, which divide a tile)

_kernels: ModuleType | None = None
_isa: str | None = None


def load() -> str:
    """Loads the kernels; returns what will be used, for the log. Cheap to call again."""
    global _kernels, _isa
    from vllm import _custom_ops

    _kernels, _isa = _custom_ops, _best_isa()
    return f"fused experts on {_isa} (bf16)" if _isa else "plain torch"


def _best_isa() -> str | None:
    if not hasattr(torch.ops._C, "cpu_fused_moe"):
        return None
    if torch.cpu._is_amx_tile_supported() and torch.cpu._init_amx():  # asks the kernel for tiles
        return "amx"
    return "vec" if torch.cpu._is_avx512_supported() else None


def fused_experts(dtype: torch.dtype, hidden: int, width: int) -> tuple[ModuleType, str] | None:
    """(kernels, instruction set) of the fused expert kernel, None where it cannot run."""
    fits = dtype == torch.bfloat16 and hidden % TILE == 0 and width % TILE == 0
    return (_kernels, _isa) if _kernels is not None and _isa is not None and fits else None


def fused_norm(dtype: torch.dtype, width: int) -> ModuleType | None:
    """The kernels if they hold a `rms_norm` for this dtype and width."""
    fits = dtype == torch.bfloat16 and width % TILE == 0
    return _kernels if fits and hasattr(torch.ops._C, "rms_norm") else None
