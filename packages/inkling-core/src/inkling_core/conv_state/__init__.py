"""State of the four short convolutions: the contract, its layout, one store, and its proof.

protocol.py says what a store must do and why in that order; layout.py says where each stream's
channels lie in a row; memory.py is a store over plain tensors; conformance/ proves any store.
"""

from inkling_core.conv_state.layout import ConvLayout, Stream
from inkling_core.conv_state.memory import TensorConvStore
from inkling_core.conv_state.protocol import ConvPlan, ConvStore

__all__ = ["ConvLayout", "ConvPlan", "ConvStore", "Stream", "TensorConvStore"]
