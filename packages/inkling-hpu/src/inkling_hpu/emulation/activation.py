"""What importing `habana_frameworks.torch` changes in torch, once per process.

What it is: the list of changes, in order. What it is not: any of them; each has its own file.
"""

from __future__ import annotations

import os
from functools import cache

from inkling_hpu.emulation.settings import EmulationSettings


@cache
def activate() -> None:
    """Give torch an `hpu` device that is the CPU. Only the first call does anything."""
    from inkling_hpu.emulation import (
        collectives,
        compile_backend,
        device_module,
        expert_kernel,
        redirect,
        sdpa,
        threads,
    )

    settings = EmulationSettings.from_environment(os.environ)
    device_module.attach(settings)
    expert_kernel.register()
    sdpa.register()
    collectives.register()
    compile_backend.register()
    redirect.push()
    threads.push_in_new_threads()
