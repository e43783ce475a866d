"""What a back end changes about starting the server, in one record.

What it is: `Launch`, the one for CPUs, and the look-up of others. inkling-hpu adds its own through
the entry-point group `inkling.launches`, so that this package knows no device but the CPU.

What it is not: the ops (inkling_core.backend) or the class that vLLM loads (plugin.py). No torch
and no vLLM here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from inkling_core.serving.paths import SCHEDULER_PATH

if TYPE_CHECKING:
    from inkling_core.serving.settings import ServeSettings

GROUP = "inkling.launches"
ON_CPU = ("cpu", "reference")


def _nothing(settings: ServeSettings, environ: MutableMapping[str, str]) -> None:
    del settings, environ


@dataclass(frozen=True)
class Launch:
    """How a server starts on one kind of device.

    variables: environment of vLLM's processes, beside those of every back end.
    prepare: called with the resolved settings and the environment before vLLM is imported; refuses
        with ValueError, and changes the environment as it needs.
    arguments: from resolved settings to vLLM's arguments beside the common ones, as on a command
        line.
    embedded_dtype: what `dtype=auto` means for the embedded model; None is as stored.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[ServeSettings, MutableMapping[str, str]], None] = _nothing
    arguments: Callable[[ServeSettings], Sequence[str]] = lambda settings: ()
    embedded_dtype: str | None = None


def _cpu_arguments(settings: ServeSettings) -> Sequence[str]:
    pool = str(settings.kv_cache_mib * 2**20)
    return ("--kv-cache-memory-bytes", pool, "--scheduler-cls", SCHEDULER_PATH)


def _refuse_space_variable(settings: ServeSettings, environ: MutableMapping[str, str]) -> None:
    if environ.get("VLLM_CPU_KVCACHE_SPACE"):
        raise ValueError(
            f"VLLM_CPU_KVCACHE_SPACE={environ['VLLM_CPU_KVCACHE_SPACE']} (GiB) would override "
            f"kv_cache_mib={settings.kv_cache_mib}: unset it"
        )


CPU = Launch(
    variables={
        "VLLM_COMPUTE_NANS_IN_LOGITS": "1",  # scheduler.py ends the request that has any
        # `auto` keeps a core back; OMP_NUM_THREADS decides
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    },
    prepare=_refuse_space_variable,
    arguments=_cpu_arguments,
    # Stored in bfloat16 to be small, and small enough to be served exactly as the float32
    # reference computes it.
    embedded_dtype="float32",
)


def launch_of(backend: str) -> Launch:
    """The record for `backend`. ValueError: its package is not installed."""
    if backend in ON_CPU:
        return CPU
    for point in entry_points(group=GROUP):
        if point.name == backend:
            return point.load()
    raise ValueError(
        f"backend={backend} needs inkling-hpu: pip install ./packages/inkling-hpu from this "
        "repository, in the environment that has vllm_gaudi"
    )
