"""The law in float64: the same functions, with every float32 on the way made float64.

Not a second law. `inkling_core.ops` widens with `Tensor.float`; inside `float64_law` that widens to
float64 instead, and inputs are given in float64. What bfloat16 would round on the way is not
rounded then, which the limits of the table allow for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from inkling_core.backend import REFERENCE
from inkling_core.parity.calls import Answers, OpsRunner, arguments_of, named
from inkling_core.parity.cases import OpCase


class float64_law(TorchFunctionMode):
    """Inside, `x.float()` is `x.double()`."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is Tensor.float:
            return args[0].double()
        return func(*args, **(kwargs or {}))


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return type(value)(*map(_widened, value))
    return value


class Float64Runner:
    """Answers cases with the reference ops in float64."""

    name = "float64"

    def answer(self, case: OpCase) -> Answers:
        """Results in float64 (ids stay int64)."""
        runner = OpsRunner(REFERENCE)
        with float64_law():
            if case.op == "model":
                return {"logits_TV": runner.model_logits(case, torch.float64)}
            arguments = {k: _widened(v) for k, v in arguments_of(case).items()}
            return named(case.op, runner.call(case.op, arguments))
