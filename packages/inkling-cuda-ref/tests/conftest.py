"""Where the kernels run, and outputs that are poisoned until somebody writes them."""

import os
import sys
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():  # read once, when triton is imported
    os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parent))  # parity_cases, under pytest's importlib mode


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """`torch.empty` and its kin come filled with NaN, or with ids that nobody has."""

    def poison(original):
        def filled(*args, **kwargs):
            out = original(*args, **kwargs)
            return out.fill_(float("nan") if out.is_floating_point() else -(1 << 30))

        return filled

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poison(getattr(owner, name)))
