"""The torch.compile backend "hpu_backend": runs the traced graph as it is.

What it is not: a compiler. vLLM decorates functions with the name at import, so it has to exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

NAME = "hpu_backend"


def register() -> None:
    """Make `backend="hpu_backend"` known to torch.compile."""
    from torch._dynamo.backends.registry import list_backends, register_backend

    if NAME not in list_backends(exclude_tags=()):
        register_backend(run_as_traced, name=NAME)


def run_as_traced(
    module: torch.fx.GraphModule, example_inputs: list[Any], **options: Any
) -> Callable[..., Any]:
    """The graph's own forward; options are the hardware compiler's."""
    return module.forward
