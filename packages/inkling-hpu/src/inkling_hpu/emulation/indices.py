"""Which indices a step may use: -1 pads, 0..size-1 are rows, anything else is a fault.

What it is: vllm-gaudi pads positions, token ids, slots and block lists with -1, which the hardware
takes for the last row (the padding block) and a CPU kernel refuses. Here -1 becomes size - 1 in
the calls below and every other index outside 0..size-1 raises `BadIndex` with op, index and size.

    wrapped: index_select, index_copy, index_add, index_fill, index_reduce, embedding
    one_hot: -1 is a row of zeros
    tensor[...] with integer tensors: below -1 raises; torch itself refuses what is too large

What it is not: what the hardware does with a bad index, which is undefined; gather and scatter
are left to torch, whose CPU kernels refuse any index outside 0..size-1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Call = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})


class BadIndex(IndexError):
    """An index that is neither a row nor the padding -1."""


def wrap(op: str, index: Tensor, size: int) -> Tensor:
    """`index` with -1 replaced by `size - 1`, int64.

    Raises BadIndex for any other index outside 0..size-1, naming op, index and size.
    """
    if index.is_meta or not index.numel():
        return index.to(torch.int64)
    wide = index.to(torch.int64)
    bad = (wide < -1) | (wide >= size)
    if bool(bad.any()):
        where = int(bad.flatten().nonzero()[0])
        raise BadIndex(
            f"{op}: index {int(wide.flatten()[where])} (entry {where} of {wide.numel()}) is "
            f"outside 0..{size - 1}, and only -1 pads; {int(bad.sum())} such"
        )
    return torch.where(wide < 0, size - 1, wide)


def _along_dim(op: str) -> Call:
    """op(self, dim, index, ...): the index runs along `dim` of self."""

    def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = ("self", "dim", "index")
        given = dict(zip(names, args, strict=False))
        given.update({name: kwargs[name] for name in names[1:] if name in kwargs})
        source = given.get("self", kwargs.get("input"))
        index, dim = given.get("index"), given.get("dim")
        if not isinstance(index, Tensor) or not isinstance(source, Tensor) or dim is None:
            return func(*args, **kwargs)  # torch names the argument that is missing
        index = wrap(op, index, source.shape[dim])
        if "index" in kwargs:
            return func(*args, **{**kwargs, "index": index})
        return func(*args[:2], index, *args[3:], **kwargs)

    return call


def _embedding(first: str, second: str) -> Call:
    """embedding: ids and the table, in either order."""

    def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = {**dict(zip((first, second), args, strict=False)), **kwargs}
        ids = "input" if "input" in (first, second) else "indices"
        given[ids] = wrap("embedding", given[ids], given["weight"].shape[0])
        return func(given.pop(first), given.pop(second), *args[2:], **given)

    return call


def _one_hot(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = {**dict(zip(("tensor", "num_classes"), args, strict=False)), **kwargs}
    given = {"tensor" if name in ("input", "self") else name: v for name, v in given.items()}
    classes = given.get("num_classes", -1)
    if classes == -1:
        return func(*args, **kwargs)
    # One class more than asked for: padding falls into it, and it is cut off again.
    ids = wrap("one_hot", _refuse_beyond(given["tensor"], classes), classes + 1)
    return func(ids, classes + 1)[..., :-1]


def _refuse_beyond(index: Tensor, size: int) -> Tensor:
    wrap("one_hot", index, size)
    return index


def _subscript(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    key = args[1]
    for item in key if isinstance(key, tuple) else (key,):
        if isinstance(item, Tensor) and item.dtype in INTEGERS and item.dim() and not item.is_meta:
            lowest = int(item.min()) if item.numel() else 0
            if lowest < -1:
                raise BadIndex(
                    f"tensor[...]: index {lowest} of a tensor of shape {tuple(args[0].shape)}; "
                    "only -1 pads"
                )
    return func(*args, **kwargs)


def _index_ops() -> dict[Callable[..., Any], Call]:
    table: dict[Callable[..., Any], Call] = {}
    for name in ("index_select", "index_copy", "index_add", "index_fill", "index_reduce"):
        for owner in (torch.Tensor, torch):
            for spelling in (name, name + "_"):
                function = getattr(owner, spelling, None)
                if function is not None:
                    table[function] = _along_dim(spelling)
    return table


# What redirect.py asks: function -> the call that checks first.
CHECKED: dict[Callable[..., Any], Call] = {
    **_index_ops(),
    torch.nn.functional.embedding: _embedding("input", "weight"),
    torch.embedding: _embedding("weight", "indices"),
    torch.nn.functional.one_hot: _one_hot,
    torch.Tensor.__getitem__: _subscript,
    torch.Tensor.__setitem__: _subscript,
}
