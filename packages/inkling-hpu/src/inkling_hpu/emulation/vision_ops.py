"""Lets torchvision's Python part import where its C part cannot load.

What it is: vllm-gaudi registers multimodal models, whose image processors import torchvision. The
index has it built for CUDA only; beside a CPU build of torch its C part does not load, and its
Python part then fails on two operators that nobody declared. This declares them.

What it is not: an implementation. Calling an operator fails. Text needs none of it.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

NAMES = ("nms", "qnms")
SCHEMA = "{}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def declare_missing() -> None:
    """Declare what torchvision's Python part names, where only torch is a CPU build."""
    import torch

    if torch.version.cuda is None and _built_for_cuda():
        # kept for the life of the process, and harmless when torchvision is imported again
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in NAMES:
            if not hasattr(torch.ops.torchvision, name):
                library.define(SCHEMA.format(name))
        _KEPT.append(library)


def _built_for_cuda() -> bool:
    try:
        text = Path(
            str(distribution("torchvision").locate_file("torchvision/version.py"))
        ).read_text()
    except (PackageNotFoundError, OSError):
        return False
    return re.search(r"^__version__.*\+cu\d", text, re.MULTILINE) is not None


_KEPT: list[object] = []
