"""How kernels read, round and multiply stored values: the one place that knows what bf16 means.

Not an op. Every kernel of this package takes the constexpr `WIDE` and hands it to these functions.

    WIDE = False   a GPU: operands of `tl.dot` keep their stored dtype, rounding is the hardware's
    WIDE = True    Triton's interpreter: bf16 is a storage format only; operands are widened to
                   float32 and rounding to bf16 is done on the bits, to the nearest, ties to even

The interpreter keeps bf16 as raw 16-bit integers: `*` and `tl.dot` on them give garbage without a
word, and its cast from float32 cuts the low bits off instead of rounding. A pass there says that
indices, masks and order of operations are right; the tensor-core path is claimed from a GPU only.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

INTERPRETED: bool = triton.knobs.runtime.interpret  # type: ignore[attr-defined]  # a lazy module
"""Whether TRITON_INTERPRET=1 was set when this module was imported: kernels run on the host."""


def device(function: Any) -> Any:
    """Marks a function that kernels call.

    In the interpreter it stays a plain function: it runs inside a kernel, which has put the
    interpreter's language in place, and a nested jit function would do that anew at each call,
    which costs more than the work.
    """
    return function if INTERPRETED else triton.jit(function)


@device
def operand(x, WIDE: tl.constexpr):
    """`x` as `tl.dot` may multiply it."""
    if WIDE:
        return x.to(tl.float32)
    return x


@device
def rounded(x, dtype: tl.constexpr, WIDE: tl.constexpr):
    """float32 `x` rounded to the nearest value of `dtype`, still float32."""
    if dtype == tl.float32:
        return x
    if WIDE:
        bits = x.to(tl.int32, bitcast=True)
        even = (bits >> 16) & 1
        near = ((bits + 0x7FFF + even) & -65536).to(tl.float32, bitcast=True)
        return tl.where(x == x, near, x)
    return x.to(dtype).to(tl.float32)


@device
def stored(x, dtype: tl.constexpr, WIDE: tl.constexpr):
    """float32 `x` as `tl.store` may write it to a tensor of `dtype`."""
    return rounded(x, dtype, WIDE).to(dtype)


@device
def multiplied(x, dtype: tl.constexpr, WIDE: tl.constexpr):
    """float32 `x`, rounded to `dtype`, as `tl.dot` may multiply it beside operands of `dtype`."""
    if WIDE:
        return rounded(x, dtype, WIDE)
    return x.to(dtype)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Runs `kernel` over `grid`, `WIDE` chosen for where it runs; an empty grid is no launch."""
    if min(grid) > 0:
        kernel[grid](*arguments, WIDE=INTERPRETED, **constants)


def power_of_2(count: int, least: int = 1) -> int:
    """The next power of two, at least `least`: a tile edge that covers `count` elements."""
    return max(least, 1 << (count - 1).bit_length())


def edge(on_gpu: int, interpreted: int) -> int:
    """A tile edge by where kernels run: the interpreter's cost goes with the number of programs,
    not with their size."""
    return interpreted if INTERPRETED else on_gpu


def tile(count: int, on_gpu: int, interpreted: int) -> int:
    """A tile edge for `count` elements: the smallest power of two that covers them, within `edge`,
    which is at least 1."""
    return min(power_of_2(count), power_of_2(max(1, edge(on_gpu, interpreted))))
