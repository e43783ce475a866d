"""Weights of a first-generation checkpoint: names and shapes, reading, sizes, tiny checkpoints.

Names, rules, checks and sizes need no torch; `load` and `stream` import it when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inkling_core.weights.audit import Audit, validate
from inkling_core.weights.errors import CheckpointError, ShardingError
from inkling_core.weights.names import TensorSpec, all_tensors, text_tensors

if TYPE_CHECKING:
    from inkling_core.weights.loader import load, stream

__all__ = [
    "Audit",
    "CheckpointError",
    "ShardingError",
    "TensorSpec",
    "all_tensors",
    "load",
    "stream",
    "text_tensors",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name in ("load", "stream"):
        from inkling_core.weights import loader

        return getattr(loader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
