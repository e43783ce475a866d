"""How a case becomes a call: arguments by the names of the law's signature, answers by name.

Not a back end. `Runner` is what the parity commands ask of one: `OpsRunner` calls the ops of any
back end whose steps are the core's `Step`; a back end with steps of its own brings a runner of its
own through the entry-point group `inkling.parity`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol

import torch
from torch import Tensor

from inkling_core import ops as law
from inkling_core.backend import REFERENCE, Backend
from inkling_core.generate import TokenGenerator
from inkling_core.model import Decoder
from inkling_core.naming import suggestion
from inkling_core.parity.cases import OpCase
from inkling_core.step import Step
from inkling_core.weights.tiny import TINY, random_tensors

GROUP = "inkling.parity"
ANSWERS = {
    "qkvr_prep": ("q_TNH", "k_TGH", "v_TGH", "rel_TNR"),
    "router": ("ids_TK", "weights_TK", "gamma_TS"),
}
"""Names of the results of an op that has several; `out` where it has one."""

Answers = dict[str, Tensor]


class Runner(Protocol):
    """What answers cases: a back end on a device."""

    name: str

    def answer(self, case: OpCase) -> Answers | None:
        """Named results on the cpu; None where this back end leaves the op to the reference."""
        ...


def arguments_of(case: OpCase, device: torch.device | None = None) -> dict[str, Any]:
    """Keyword arguments of the op, tensors on `device`; `step` is still a mapping of lists."""
    tensors = {name: tensor.to(device) for name, tensor in case.tensors.items()}
    given = {**tensors, **case.values}
    found: dict[str, Any] = {}
    for name in inspect.signature(getattr(law, case.op)).parameters:
        if name == "weights":
            parts = {f: given[f"weights.{f}"] for f in law.QkvrWeights._fields}
            found[name] = law.QkvrWeights(**parts)
        else:
            found[name] = tuple(given[name]) if name == "starts" else given[name]
    return found


def named(op: str, results: Tensor | tuple[Tensor, ...]) -> Answers:
    """Results of an op under their names, on the cpu."""
    names = ANSWERS.get(op, ("out",))
    parts = results if isinstance(results, tuple) else (results,)
    return {name: part.cpu() for name, part in zip(names, parts, strict=True)}


def tiny_decoder(
    backend: Backend, seed: int, dtype: torch.dtype, device: torch.device | None = None
) -> Decoder:
    """The decoder of the `model` case: `weights.tiny.TINY` with random weights."""
    decoder = Decoder(TINY, backend, dtype=dtype, device=device)
    own = {name for name, _ in decoder.named_parameters()}
    pairs = ((s.name.removeprefix("model.llm."), t) for s, t in random_tensors(TINY, seed))
    return decoder.load_weights((name, t.to(device)) for name, t in pairs if name in own)


class OpsRunner:
    """Calls the ops of a back end that takes the core's steps."""

    def __init__(self, backend: Backend, device: torch.device | None = None) -> None:
        self.backend, self.device, self.name = backend, device, backend.name

    def answer(self, case: OpCase) -> Answers | None:
        """See `Runner`."""
        if case.op == "model":
            return {"logits_TV": self.model_logits(case).cpu()}
        if self.backend is not REFERENCE and case.op not in self.backend.ops:
            return None
        return named(case.op, self.call(case.op, arguments_of(case, self.device)))

    def call(self, op: str, arguments: Mapping[str, Any]) -> Tensor | tuple[Tensor, ...]:
        """One op with keyword arguments; expert weights are packed first, as a decoder does."""
        arguments = dict(arguments)
        if op == "rel_attention":
            arguments["step"] = Step.build(**arguments["step"], device=self.device)
        if op in ("experts", "shared_experts"):
            names = [name for name in arguments if name.startswith(("w13_", "w2_"))]
            packed = self.op("pack_experts")(*(arguments[name] for name in names))
            arguments.update(zip(names, packed, strict=True))
        return self.op(op)(**arguments)

    def op(self, name: str) -> Any:
        """The back end's function, the reference's where it has none."""
        return self.backend.ops.get(name, getattr(law, name))

    def model_logits(self, case: OpCase, dtype: torch.dtype = torch.float32) -> Tensor:
        """`[T, V]` of the tiny decoder, fed chunk by chunk."""
        decoder = tiny_decoder(self.backend, case.values["weights_seed"], dtype, self.device)
        ids_T = case.tensors["ids_T"]
        generator = TokenGenerator(decoder, len(ids_T), case.values["block_size"])
        return torch.cat([generator.feed(part) for part in ids_T.split(case.values["chunks"])])


def runner(name: str, device: torch.device | None = None) -> Runner:
    """The runner of a back end: `reference` and `cpu` here, others from installed packages.

    Raises ValueError with the near name, or with what has to be installed.
    """
    if name == REFERENCE.name:
        return OpsRunner(REFERENCE, device)
    if name == "cpu":
        from inkling_core.serving.cpu import CPU

        return OpsRunner(CPU, device)
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        known = ("reference", "cpu", *sorted(points))
        raise ValueError(
            f"backend={name!r} is not installed: choose from {', '.join(known)}; "
            f"{suggestion(name, known)}. cuda_ref comes with inkling-cuda-ref, hpu with inkling-hpu"
        )
    return points[name].load()(device)
