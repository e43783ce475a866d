"""`vllm.general_plugins` entry point: on a Gaudi, vLLM serves Inkling with this package.

What it is: registrations. vLLM calls `register` in every process it starts, in any order among
other plug-ins and several times in some, so it is idempotent and does not care who came first.

    not on a Gaudi             nothing happens
    vllm_gaudi has changed     refused, every difference listed (gaudi.names)
    our architectures          our model class over vLLM's; our worker and our scheduler where
                               nobody has named another; our buckets while no variable of
                               vllm-gaudi chooses some
    every other model          untouched

What it is not: the patches' register (patches.py), the refusals (refusals.py) or the parts of
serving that have no device in them, which are inkling_core's.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from inkling_core.serving.paths import ARCHITECTURES
from inkling_core.serving.paths import SCHEDULER_PATH as SYNCHRONOUS
from inkling_hpu.paths import DEVICE_NAME, MODEL_PATH, SCHEDULER_PATH, WORKER_PATH

MARK = "wrapped_by_inkling_hpu"


def register() -> None:
    """Register everything, where vLLM's platform is a Gaudi. Cheap to call again.

    Raises DriftError where vllm_gaudi is not what this package was written against.
    """
    from vllm.platforms import current_platform

    if getattr(current_platform, "device_name", None) != DEVICE_NAME:
        return
    from inkling_core.serving import plugin as serving
    from inkling_hpu import patches
    from inkling_hpu.gaudi.names import refuse_drift

    refuse_drift()
    serving.register()
    serving.register_models(MODEL_PATH)
    choose_classes(type(current_platform))
    patches.announce()


def choose_classes(platform: type) -> None:
    """Wrap the platform's `check_and_update_config`, once.

    platform: class with that class method; our architectures get our classes there, after the
    refusals and before the platform's own choice, which only fills in an "auto".
    """
    original: Any = platform.__dict__.get("check_and_update_config")
    if original is None or getattr(original.__func__, MARK, False):
        return

    @functools.wraps(original.__func__)
    def check_and_update_config(cls: type, vllm_config: Any) -> None:
        if serves_inkling(vllm_config):
            _prepare(vllm_config)
        original.__func__(cls, vllm_config)

    setattr(check_and_update_config, MARK, True)
    # setattr: a type checker knows no such attribute of a plain `type`
    setattr(platform, "check_and_update_config", classmethod(check_and_update_config))  # noqa: B010


def serves_inkling(vllm_config: Any) -> bool:
    """Whether this configuration is for one of our architectures."""
    model_config = vllm_config.model_config
    named = getattr(getattr(model_config, "hf_config", None), "architectures", None) or ()
    return not set(ARCHITECTURES).isdisjoint(named)


def _prepare(vllm_config: Any) -> None:
    from inkling_hpu.emulation import EmulationSettings, is_installed
    from inkling_hpu.refusals import INPUT_REUSE, Deployment, refuse

    float32 = is_installed() and EmulationSettings.from_environment(os.environ).float32
    asked = Deployment.of(vllm_config, float32_allowed=float32)
    refuse(vllm_config.model_config.hf_config.geometry, asked)
    os.environ.setdefault(INPUT_REUSE, "0")
    _name_buckets(asked.block_size, vllm_config)
    if vllm_config.parallel_config.worker_cls == "auto":
        vllm_config.parallel_config.worker_cls = WORKER_PATH
    scheduling = vllm_config.scheduler_config
    if scheduling.scheduler_cls is None:
        scheduling.scheduler_cls = SCHEDULER_PATH if scheduling.async_scheduling else SYNCHRONOUS


def _name_buckets(block_size: int, vllm_config: Any) -> None:
    """Our buckets, for this process and those it starts, unless the operator chose some."""
    from inkling_hpu.buckets.file import put_in_place
    from inkling_hpu.buckets.profile import Profile

    scheduler = vllm_config.scheduler_config
    profile = Profile(
        vllm_config.model_config.max_model_len,
        max_num_seqs=scheduler.max_num_seqs,
        chunk=scheduler.max_num_batched_tokens,
        block_size=block_size,
    )
    cache = Path(os.environ.get("VLLM_CACHE_ROOT", "~/.cache/vllm")).expanduser()
    put_in_place(profile, cache / "inkling", os.environ)
