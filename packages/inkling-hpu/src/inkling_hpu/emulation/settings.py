"""What can be chosen about the emulated device, once: by keyword, or by INKLING_EMULATED_*.

What it is: a frozen dataclass; `environment` writes it out so that child processes read the very
same values. What it is not: vLLM's or vllm-gaudi's settings. No torch here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "INKLING_EMULATED_"
SWITCH = "INKLING_HPU_EMULATION"
"""`1` tells a child process to install the import hook at start; the parent sets it."""
GAUDI_GENERATIONS = (2, 3)
GIB = 2**30


@dataclass(frozen=True)
class EmulationSettings:
    """The emulated device.

    gaudi: generation that the device claims to be, 2 or 3.
    memory_gib: device memory, total and free, GiB; vllm-gaudi sizes its KV pool from it.
    graph_log: file that gets one JSON line per new graph signature, from every process; None is
        no file.
    float32: leave a model's float32 alone, which vllm-gaudi's platform would turn into bfloat16.
    sum_factor: what the row sums of "fast" attention are too large by; callers have been seen to
        undo 128, and others nothing.
    """

    gaudi: int = 2
    memory_gib: float = 4.0
    graph_log: str | None = None
    float32: bool = False
    sum_factor: float = 128.0

    def __post_init__(self) -> None:
        if self.gaudi not in GAUDI_GENERATIONS:
            raise ValueError(f"gaudi={self.gaudi} must be one of {GAUDI_GENERATIONS}")
        if not self.memory_gib > 0:  # written so that NaN fails too
            raise ValueError(f"memory_gib={self.memory_gib} must be > 0")
        if not self.sum_factor > 0:
            raise ValueError(f"sum_factor={self.sum_factor} must be > 0")

    @property
    def memory_bytes(self) -> int:
        """Device memory in bytes."""
        return int(self.memory_gib * GIB)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> EmulationSettings:
        """The settings that `environment` wrote; defaults where silent. ValueError: no number."""
        read = {name: environ.get(PREFIX + name.upper()) for name in cls.__dataclass_fields__}
        return cls(
            gaudi=int(read["gaudi"] or cls.gaudi),
            memory_gib=float(read["memory_gib"] or cls.memory_gib),
            graph_log=read["graph_log"] or None,
            float32=read["float32"] in ("1", "true"),
            sum_factor=float(read["sum_factor"] or cls.sum_factor),
        )

    def environment(self) -> dict[str, str]:
        """Variables from which `from_environment` reads these settings."""
        return {
            PREFIX + "GAUDI": str(self.gaudi),
            PREFIX + "MEMORY_GIB": str(self.memory_gib),
            PREFIX + "GRAPH_LOG": self.graph_log or "",
            PREFIX + "FLOAT32": "1" if self.float32 else "0",
            PREFIX + "SUM_FACTOR": str(self.sum_factor),
        }
