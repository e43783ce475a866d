"""How a back end supplies ops: names, signatures, and verifiers that answer before anything runs.

Not an op and not a registry of devices. A back end lists the functions it replaces, under the
names and signatures of `inkling_core.ops`; for each one a verifier says "yes" or "no, because
...". A refused op falls back to the reference, and the refusal is logged once.

    ops = MY_BACKEND.bind(OpContext(config, torch.bfloat16, torch.device("cpu")))
    ops.rms_norm(x, weight, eps)
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import torch

from inkling_core import joined as one_by_one
from inkling_core import ops as reference_ops
from inkling_core.config import InklingConfig

logger = logging.getLogger(__name__)

DISABLE_VARIABLE = "INKLING_DISABLE_BACKENDS"
"""Environment switch: `1` binds the reference ops everywhere, whatever back end was asked for."""


@dataclass(frozen=True)
class Verdict:
    """A verifier's answer. A refusal carries its reason."""

    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason

    def __str__(self) -> str:
        return "yes" if self.ok else f"no, because {self.reason}"


YES = Verdict()


def no(reason: str) -> Verdict:
    """A refusal; `reason` completes the sentence "no, because ..."."""
    if not reason:
        raise ValueError("a refusal needs a reason")
    return Verdict(reason)


@dataclass(frozen=True)
class OpContext:
    """What a verifier may look at: it answers once, before any tensor exists."""

    config: InklingConfig
    dtype: torch.dtype
    device: torch.device
    tp_size: int = 1


@dataclass(frozen=True)
class BoundOps:
    """One callable per op and per joined step, under the names of `inkling_core.ops` and
    `inkling_core.joined`; the signatures are theirs, a joined step's without its leading ops."""

    rms_norm: Callable[..., torch.Tensor]
    silu_and_mul: Callable[..., torch.Tensor]
    short_conv: Callable[..., torch.Tensor]
    query_scale: Callable[..., torch.Tensor]
    qkvr_prep: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]
    rel_attention: Callable[..., torch.Tensor]
    router: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    pack_experts: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    experts: Callable[..., torch.Tensor]
    shared_experts: Callable[..., torch.Tensor]
    logits: Callable[..., torch.Tensor]
    qkvr_prep_and_write: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    conv_add_norm: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    mixture: Callable[..., tuple[torch.Tensor, ...]]


JOINED_NAMES = tuple(one_by_one.PARTS)
OP_NAMES = tuple(f.name for f in fields(BoundOps) if f.name not in JOINED_NAMES)


@dataclass(frozen=True)
class Backend:
    """A named set of replacement ops.

    Args:
        name: shown in logs and tables.
        ops: op name -> function; absent ops are the reference's.
        verifiers: op name -> function of an `OpContext`; an op without one always accepts.
        joined: joined step -> function that runs it as one (`inkling_core.joined`).
    """

    name: str
    ops: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    verifiers: Mapping[str, Callable[[OpContext], Verdict]] = field(default_factory=dict)
    joined: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, names, known in (
            ("ops", self.ops, OP_NAMES),
            ("verifiers", self.verifiers, OP_NAMES),
            ("joined steps", self.joined, JOINED_NAMES),
        ):
            unknown = sorted(set(names) - set(known))
            if unknown:
                raise ValueError(
                    f"back end {self.name!r}: unknown {what} {unknown}; known: {list(known)}"
                )
        orphans = sorted(set(self.verifiers) - set(self.ops))
        if orphans:
            raise ValueError(f"back end {self.name!r}: verifiers without an op: {orphans}")

    def verdict(self, op: str, context: OpContext) -> Verdict:
        """Whether this back end runs `op` in this context."""
        if os.environ.get(DISABLE_VARIABLE) == "1":
            return no(f"{DISABLE_VARIABLE}=1")
        if op not in self.ops:
            return no(f"back end {self.name!r} does not implement it")
        verifier = self.verifiers.get(op)
        return YES if verifier is None else verifier(context)

    def bind(self, context: OpContext) -> BoundOps:
        """Resolves every op once; refusals are logged with their reason."""
        bound: dict[str, Callable[..., Any]] = {}
        for op in OP_NAMES:
            verdict = self.verdict(op, context)
            bound[op] = self.ops[op] if verdict.ok else getattr(reference_ops, op)
            if op in self.ops and not verdict.ok:
                logger.warning("%s.%s: %s; the reference op runs", self.name, op, verdict)
        return BoundOps(**bound, **self._joined(bound))

    def _joined(self, bound: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """Each joined step: as one where this back end runs every op of it, else op after op."""
        found: dict[str, Callable[..., Any]] = {}
        for name, parts in one_by_one.PARTS.items():
            own = name in self.joined and all(bound[op] is self.ops.get(op) for op in parts)
            body = partial(getattr(one_by_one, name), *(bound[op] for op in parts))
            found[name] = self.joined[name] if own else body
        return found


REFERENCE = Backend("reference")
"""The law itself: `inkling_core.ops`, nothing replaced."""
