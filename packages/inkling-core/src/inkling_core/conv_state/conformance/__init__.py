"""A suite that any conv store imports and runs, whatever device or engine its rows live in.

    from inkling_core.conv_state.conformance import ConvStoreConformance

    class TestMyStore(ConvStoreConformance[MyStore]):
        def make_store(self, layout, num_layers, num_blocks): ...
        def rows(self, store, layer): ...

sequences.py knows what every history must be, by recomputation; engine.py plays a scheduler with a
prefix cache; replay.py drives a store through steps and compares bit for bit; suite.py holds the
tests. Needs pytest and hypothesis (the extra `conformance`), which nothing else here does.
"""

from inkling_core.conv_state.conformance.engine import MiniEngine, Request, Scheduled
from inkling_core.conv_state.conformance.replay import Replay
from inkling_core.conv_state.conformance.sequences import TokenSequence
from inkling_core.conv_state.conformance.suite import ConvStoreConformance

__all__ = [
    "ConvStoreConformance",
    "MiniEngine",
    "Replay",
    "Request",
    "Scheduled",
    "TokenSequence",
]
