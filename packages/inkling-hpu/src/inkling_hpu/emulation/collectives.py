"""The process-group backend "hccl", as gloo.

What it is: a registration. Sums are exact in the order that gloo adds them, which is not the order
in which a ring of cards adds; results agree with the hardware's within rounding only.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

BACKEND = "hccl"


def register() -> None:
    """Make `backend="hccl"` known to torch.distributed, unless something already did."""
    if dist.is_available() and BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _gloo, devices=["cpu", "hpu"])


def _gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    return dist.ProcessGroupGloo(store, rank, size, timeout)
