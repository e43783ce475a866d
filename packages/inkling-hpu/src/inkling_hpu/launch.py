"""How `inkling serve backend=hpu_emulated` starts: vLLM's server on the emulated device.

What it is: an `inkling_core.serving.launch.Launch`. The device's memory is the pool that was asked
for (kv_cache_mib), so vllm-gaudi's own arithmetic turns it into blocks.

What it is not: production. On a Gaudi vLLM is started with its own command and finds the plugin.
"""

from __future__ import annotations

import importlib.util
from collections.abc import MutableMapping, Sequence

from inkling_core.serving.launch import Launch
from inkling_core.serving.settings import ServeSettings
from inkling_hpu.emulation import EmulationSettings, install

NEEDED = ("vllm", "vllm_gaudi")


def _prepare(settings: ServeSettings, environ: MutableMapping[str, str]) -> None:
    """Install the emulation in this process, for its children too."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"backend={settings.backend} needs {' and '.join(missing)} in this environment: "
            "docs/backends/hpu.md says how to make one"
        )
    if settings.conv_dtype not in ("auto", settings.dtype):
        raise ValueError(
            f"conv_dtype={settings.conv_dtype}: on a Gaudi conv rows have the model's dtype "
            f"({settings.dtype}); leave it at auto"
        )
    install(
        EmulationSettings(
            memory_gib=settings.kv_cache_mib / 1024, float32=settings.dtype == "float32"
        )
    )


def _arguments(settings: ServeSettings) -> Sequence[str]:
    # the emulated device holds nothing but the pool
    always = ("--gpu-memory-utilization", "1.0")
    if settings.long_prefill_share is None:
        return always
    return (*always, "--no-async-scheduling")  # inkling_core.serving.long_prefill says why


EMULATED = Launch(
    variables={
        "PT_HPU_LAZY_MODE": "1",  # as production
        "VLLM_SKIP_WARMUP": "true",  # nothing is captured here, so nothing has to be warmed up
    },
    prepare=_prepare,
    arguments=_arguments,
    embedded_dtype="float32",  # as on a CPU, so that the gates can hold it to the reference
)
