"""Lets float32 models run in float32 on the emulated device.

What it is: vllm-gaudi's platform turns float16 and float32 models into bfloat16 while it checks the
configuration. With `float32` set (settings.py) the dtype is put back afterwards, so that a whole
run can be compared token by token with a float32 reference.

What it is not: something a Gaudi does. Production is bfloat16.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class LiftingLoader(Loader):
    """Loads the platform module with its own loader, then lifts the cast."""

    def __init__(self, original: Loader) -> None:
        self.original = original

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.original.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.original.exec_module(module)
        lift(module.HpuPlatform)  # type: ignore[attr-defined]  # the module is vllm_gaudi's


def lifting_spec(name: str, skipping: MetaPathFinder) -> ModuleSpec | None:
    """The spec that the other finders give for `name`, with the loader above around its own."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if finder is skipping or find is None:
            continue
        parent = sys.modules[name.rpartition(".")[0]]
        spec = find(name, parent.__path__, None)
        if spec is not None and spec.loader is not None:
            spec.loader = LiftingLoader(spec.loader)
            return spec
    return importlib.util.find_spec(name)


def lift(platform: Any) -> None:
    """Wrap `platform.check_and_update_config` so that a float32 model stays float32."""
    import torch

    checked = platform.check_and_update_config.__func__

    def keep_float32(cls: Any, vllm_config: Any) -> None:
        model = vllm_config.model_config
        wanted = None if model is None else model.dtype
        checked(cls, vllm_config)
        if wanted is torch.float32:
            model.dtype = wanted

    platform.check_and_update_config = classmethod(keep_float32)
