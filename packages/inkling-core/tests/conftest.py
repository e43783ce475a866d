"""Shared fixtures of the core tests."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # op_inputs, last_rows: importlib mode


@pytest.fixture
def poisoned_empty(monkeypatch):
    """`torch.empty` and its kin come filled with NaN, so an element nobody wrote shows."""

    def poison(original):
        def filled(*args, **kwargs):
            out = original(*args, **kwargs)
            return out.fill_(float("nan")) if out.is_floating_point() and out.numel() else out

        return filled

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, poison(getattr(torch, name)))
