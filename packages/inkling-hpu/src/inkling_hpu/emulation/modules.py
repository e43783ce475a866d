"""The emulated modules of `habana_frameworks`: what vllm-gaudi imports, and nothing more.

What it is: a table from module name to its members. A name that is missing here fails at import or
as an AttributeError, which says what else would have to be emulated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from types import ModuleType
from typing import Any

from inkling_hpu.emulation.settings import EmulationSettings

ROOT = "habana_frameworks"
Members = dict[str, Any]


class SynDeviceType(Enum):
    """Device generations by the bridge's names."""

    synDeviceGaudi2 = 2
    synDeviceGaudi3 = 3


class GraphMetric:
    """Of graph compilations: none happen here."""

    def stats(self) -> list[tuple[str, Any]]:
        """Entries by position, as the caller reads them: number, time, average, recipes."""
        return [("TotalNumber", 0), ("TotalTime", 0), ("AvgTime", 0), ("Recipes", [])]


def _experimental() -> Members:
    settings = EmulationSettings.from_environment(os.environ)
    device = SynDeviceType(settings.gaudi)
    return {
        "synDeviceType": SynDeviceType,
        "_get_device_type": lambda: device,
        "_data_ptr": lambda tensor: tensor.data_ptr(),
    }


def nothing(*args: Any, **kwargs: Any) -> None:
    """What is done when it is called needs no graph break and no preparation."""


def _core() -> Members:
    return {"mark_step": nothing, "hpu_inference_set_env": nothing, "hpu_initialize": nothing}


def _hpu() -> Members:
    import torch

    from inkling_hpu.emulation.graphs import wrap_in_hpu_graph

    hpu = torch.hpu  # type: ignore[attr-defined]  # attached when habana_frameworks.torch loads
    shared = {name: getattr(hpu, name) for name in vars(hpu) if not name.startswith("_")}
    return {**shared, "wrap_in_hpu_graph": wrap_in_hpu_graph}


@contextmanager
def metric_localcontext(name: str) -> Iterator[GraphMetric]:
    """Graph compilations inside the block."""
    yield GraphMetric()


@contextmanager
def env_setting(name: str, value: Any) -> Iterator[None]:
    """A setting of the bridge inside the block: nothing here reads any."""
    yield


def is_lazy() -> bool:
    """Lazy mode, which PT_HPU_LAZY_MODE=1 asks for; the default is eager."""
    return os.environ.get("PT_HPU_LAZY_MODE", "0") == "1"


def _torch() -> Members:
    import torch

    return {"torch": torch}


def _kernels() -> Members:
    from inkling_hpu.emulation import kernels, sdpa

    return {
        "FusedSDPA": sdpa.FusedSDPA,
        "RotaryPosEmbeddingMode": kernels.RotaryPosEmbeddingMode,
        "apply_rotary_pos_emb": kernels.apply_rotary_pos_emb,
    }


def _fused_sdpa() -> Members:
    from inkling_hpu.emulation import sdpa

    names = ("FusedSDPA", "is_gqa", "gqa_input_reshape_fwd", "gqa_output_reshape")
    return {name: getattr(sdpa, name) for name in names}


def _normalization() -> Members:
    from inkling_hpu.emulation.kernels import FusedRMSNorm

    return {"FusedRMSNorm": FusedRMSNorm}


_TABLE: dict[str, Callable[[], Members]] = {
    "": dict,
    "torch": _torch,
    "torch.core": _core,
    "torch.hpu": _hpu,
    "torch.hpu.metrics": lambda: {"metric_localcontext": metric_localcontext},
    "torch.utils": dict,
    "torch.utils.internal": lambda: {"is_lazy": is_lazy},
    "torch.utils.experimental": _experimental,
    "torch.internal": dict,
    "torch.internal.bridge_config": lambda: {"env_setting": env_setting},
    "torch.hpex": dict,
    "torch.hpex.kernels": _kernels,
    "torch.hpex.kernels.FusedSDPA": _fused_sdpa,
    "torch.hpex.normalization": _normalization,
}


def names() -> frozenset[str]:
    """Full names of all emulated modules."""
    return frozenset(f"{ROOT}.{name}" if name else ROOT for name in _TABLE)


def below(name: str) -> list[str]:
    """Full names of the modules inside module `name`, parents first."""
    return sorted(other for other in names() if other.startswith(f"{name}."))


def build(name: str) -> ModuleType:
    """A new module of that full name, with its members."""
    module = ModuleType(name)
    fill(module)
    return module


def fill(module: ModuleType) -> None:
    """Give an emulated module its members, again where a submodule has taken the name of one."""
    module.__dict__.update(_TABLE[module.__name__.removeprefix(ROOT).removeprefix(".")]())
