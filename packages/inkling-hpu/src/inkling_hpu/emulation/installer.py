"""The import hook, and how child processes inherit it.

What it is: a finder at the head of `sys.meta_path` that answers for `habana_frameworks` and its
submodules. Child processes (vLLM spawns its engine and its workers) find the directory `startup/`
first on PYTHONPATH; the `sitecustomize` in it installs the hook before any other import.

What it is not: active. Torch is imported and devices are redirected only when
`habana_frameworks.torch` is imported, as on a machine with the real bridge.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from inkling_hpu.emulation import vision_ops
from inkling_hpu.emulation.settings import SWITCH, EmulationSettings

BRIDGE = "habana_frameworks"
RUNNER_PACKAGE = "vllm_gaudi"
STARTUP = str(Path(__file__).parent / "startup")
ENGINE_DEFAULTS = {
    # Without a Habana package vllm-gaudi cannot tell its version. From 1.24.0.350 on it asks for
    # Intel's quantiser as well, which is not on the package index.
    "VLLM_BUILD": "1.23.0.100",
}


class RealBridgePresent(RuntimeError):
    """The real `habana_frameworks` is importable: emulating it would hide the device."""


class BridgeFinder(MetaPathFinder):
    """Answers for the emulated modules, and for nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if top == RUNNER_PACKAGE:
            return self._lifted(fullname)
        if fullname == "torchvision":
            vision_ops.declare_missing()
            return None  # the real one follows
        if top != BRIDGE:
            return None
        from inkling_hpu.emulation import modules

        if fullname not in modules.names():
            return None  # an import of something we do not emulate fails by its own name
        return ModuleSpec(fullname, BridgeLoader(), is_package=True)

    def _lifted(self, name: str) -> ModuleSpec | None:
        """A module of vllm-gaudi where the forced cast to bfloat16 is lifted; None for others."""
        if not EmulationSettings.from_environment(os.environ).float32:
            return None
        from inkling_hpu.emulation.float32 import LIFTS, lifting_spec

        return lifting_spec(name, skipping=self) if name in LIFTS else None


class BridgeLoader(Loader):
    """Hands out the modules that `modules.py` builds."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        from inkling_hpu.emulation import modules

        return modules.build(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == f"{BRIDGE}.torch":
            from inkling_hpu.emulation import modules
            from inkling_hpu.emulation.activation import activate

            activate()
            # as the bridge: htorch.core needs no import, and kernels.FusedSDPA is the class
            below = [importlib.import_module(name) for name in modules.below(module.__name__)]
            for one in below:
                modules.fill(one)


def install(settings: EmulationSettings | None = None) -> None:
    """Answer for `habana_frameworks` from now on, here and in child processes.

    settings: the emulated device; None reads INKLING_EMULATED_* and keeps defaults where silent.
    Raises RealBridgePresent where the real bridge can be imported. Idempotent.
    """
    refuse_beside_the_real_bridge()
    settings = settings or EmulationSettings.from_environment(os.environ)
    os.environ.update({SWITCH: "1", **settings.environment()})
    for name, value in ENGINE_DEFAULTS.items():
        os.environ.setdefault(name, value)
    _inherit_by_children()
    if not is_installed():
        sys.meta_path.insert(0, BridgeFinder())


def is_installed() -> bool:
    """Whether the hook is in place in this process."""
    return any(isinstance(finder, BridgeFinder) for finder in sys.meta_path)


def refuse_beside_the_real_bridge() -> None:
    """Raises RealBridgePresent when `habana_frameworks` comes from somewhere else than here."""
    if is_installed():
        return
    spec = importlib.util.find_spec(BRIDGE)
    if spec is None:
        return
    places = [*(spec.submodule_search_locations or []), spec.origin]
    where = next((place for place in places if place), "an unknown place")
    raise RealBridgePresent(
        f"the real {BRIDGE} is importable from {where}: emulation would hide the device. "
        f"Run without it (unset {SWITCH}, backend=hpu), or in an environment without {BRIDGE}"
    )


def _inherit_by_children() -> None:
    inherited = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if STARTUP not in inherited:
        os.environ["PYTHONPATH"] = os.pathsep.join([STARTUP, *inherited])
