"""Torch's function modes belong to a thread; this pushes ours in every thread that starts later.

What it is not: retroactive. A thread that runs when the emulation is activated keeps plain torch.
"""

from __future__ import annotations

import threading
from typing import Any

from inkling_hpu.emulation.redirect import HpuToCpu


def push_in_new_threads() -> None:
    """Wrap the start of `threading.Thread`, whichever way a subclass says what it runs."""
    original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]  # no public seam

    def redirected(self: threading.Thread) -> Any:
        with HpuToCpu():
            return original(self)

    threading.Thread._bootstrap_inner = redirected  # type: ignore[attr-defined]  # as above
