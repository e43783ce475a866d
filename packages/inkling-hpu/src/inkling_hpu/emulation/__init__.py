"""A Gaudi for tests: `habana_frameworks` answered by torch on a CPU, behind an import hook.

What it is: `install()` lets `import habana_frameworks` succeed in this process and in every Python
process that it starts, so that vllm-gaudi's own worker, runner and scheduler run unmodified. It is
never on by itself, and refuses to start where the real bridge can be imported.

    installer.py   the import hook and how child processes inherit it
    settings.py    what can be chosen: Gaudi 2 or 3, device memory, graph log, float32
    modules.py     the tree of emulated modules;  activation.py: what importing it changes in torch
    redirect.py    "hpu" devices become "cpu"; threads.py: in every thread
    indices.py     -1 pads, every other bad index raises
    device_module.py  torch.hpu;  graphs.py: would-be graph captures, counted
    sdpa.py, kernels.py, expert_kernel.py  the fused kernels
    collectives.py hccl over gloo;  compile_backend.py: hpu_backend runs what was traced
    vision_ops.py  torchvision imports although its C part does not load
    float32.py     lets float32 models stay float32

What it is not: a simulator of the hardware. README.md beside this file lists what it cannot show.
Importing this package imports no torch.
"""

from inkling_hpu.emulation.installer import RealBridgePresent, install, is_installed
from inkling_hpu.emulation.settings import EmulationSettings

__all__ = ["EmulationSettings", "RealBridgePresent", "install", "is_installed"]
