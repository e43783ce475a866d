"""Lets float32 models run in float32 on the emulated device.

What it is: vllm-gaudi's platform turns float16 and float32 models into bfloat16 while it checks the
configuration, and vLLM's attention selector knows no float32 cache by name. With `float32` set
(settings.py) both are lifted as the modules load, so that a whole run can be compared token by
token with a float32 reference.

What it is not: something a Gaudi does. Production is bfloat16.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch


class LiftingLoader(Loader):
    """Loads a module with its own loader, then changes it."""

    def __init__(self, original: Loader, lift: Callable[[Any], None]) -> None:
        self.original, self.lift = original, lift

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.original.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.original.exec_module(module)
        self.lift(module)


def lifting_spec(name: str, skipping: MetaPathFinder) -> ModuleSpec | None:
    """The spec that the other finders give for `name`, one of LIFTS, with the loader above around
    its own; None where nobody finds it."""
    parent = sys.modules[name.rpartition(".")[0]]
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if finder is skipping or find is None:
            continue
        spec = find(name, parent.__path__, None)
        if spec is not None and spec.loader is not None:
            spec.loader = LiftingLoader(spec.loader, LIFTS[name])
            return spec
    return None


def keep_the_model_s_dtype(module: Any) -> None:
    """Wrap `HpuPlatform.check_and_update_config` so that a float32 model stays float32."""
    platform = module.HpuPlatform
    checked = platform.check_and_update_config.__func__

    def keep_float32(cls: Any, vllm_config: Any) -> None:
        model = vllm_config.model_config
        wanted = None if model is None else model.dtype
        checked(cls, vllm_config)
        if model is not None and wanted is torch.float32:
            model.dtype = wanted

    platform.check_and_update_config = classmethod(keep_float32)


def name_no_float32_cache(module: Any) -> None:
    """A float32 cache goes by the name "auto", the model's own dtype."""
    module.HPU_TORCH_DTYPE_TO_STR_DTYPE[torch.float32] = "auto"


LIFTS: dict[str, Callable[[Any], None]] = {
    "vllm_gaudi.platform": keep_the_model_s_dtype,
    "vllm_gaudi.v1.worker.hpu_model_runner": name_no_float32_cache,
}
