"""Bytes that one op moves, from the shapes of its arguments and results.

    most ops   operands + results, no credit for fusion or caches
    gathers    2 x result: the rows that are taken, read and written, not the table
    scatters   2 x source, for the same reason
    experts    the weights of the distinct experts that T tokens choose if routing is uniform:
               E * (1 - (1 - K / E) ** T) of E, plus operands and results; experts that every
               token chooses (the second lists of `moe`) once

Not a measurement and not a lower bound. A dimension with stride 0 (an expanded tensor) counts once:
that is what lies in memory.
"""

from __future__ import annotations

from math import prod
from typing import Any

from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from inkling_hpu.counter.rule import op_name

GATHERS = frozenset(("index", "index_select", "gather", "embedding", "take"))
SCATTERS = {"index_put_": "values", "index_copy_": "source", "scatter_": "src"}
OVERWRITES = frozenset(("copy_", "fill_", "zero_"))  # the old values of `self` are not read
MOE = "inkling_hpu::moe"


def traffic(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Bytes read and written by one call."""
    name, given = op_name(func), _named(func, args, kwargs)
    if name in GATHERS:
        return 2 * _bytes(result)
    if isinstance(given.get(SCATTERS.get(name, "")), Tensor):
        return 2 * _bytes(given[SCATTERS[name]])
    if name == MOE:
        return _experts(**given) + _bytes(result)
    if name in OVERWRITES:
        given.pop("self")
    return _bytes(list(given.values())) + _bytes(result)


def distinct_experts(experts: int, chosen: int, tokens: int) -> float:
    """Experts that `tokens` tokens choose, each `chosen` of `experts` at random, on average."""
    return experts * (1.0 - (1.0 - chosen / experts) ** tokens)


def _experts(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    w13: Tensor,
    w2: Tensor,
    more_w13: Tensor | None = None,
    more_w2: Tensor | None = None,
) -> int:
    always = 0 if more_w13 is None else len(more_w13)
    share = distinct_experts(len(w13), ids.shape[-1] - always, len(ids)) / len(w13)
    return _bytes((x, ids, weights, more_w13, more_w2)) + round(_bytes((w13, w2)) * share)


def _named(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Operands by their names in the schema, without tensors that are given to be overwritten."""
    arguments = func._schema.arguments
    given = {argument.name: value for argument, value in zip(arguments, args, strict=False)}
    given.update(kwargs)
    outputs = {argument.name for argument in arguments if argument.is_out}
    return {name: value for name, value in given.items() if name not in outputs}


def _bytes(values: Any) -> int:
    """Of all tensors in a tensor, or in a list of anything."""
    return sum(_held(leaf) for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def _held(x: Tensor) -> int:
    sizes = (size for size, stride in zip(x.shape, x.stride(), strict=True) if stride or not size)
    return prod(sizes) * x.element_size()
