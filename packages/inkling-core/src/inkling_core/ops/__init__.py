"""The law: pure functions that define every operation of the family, on packed tokens.

Not fast and not stateful: caches and conv rows are read and written by their owners
(`kv_cache`, `conv_state`); back ends re-implement these files under the same names and signatures.

Shape legend, used in the whole repository:
    B batch        T packed tokens    D hidden size     N query heads     G key/value heads
    H head dim     U relative width   R relative extent S keys            Q requests
    E experts      K chosen experts   I expert width    C channels        V vocabulary
    W conv taps    J = W - 1 history  P physical blocks L block length    M blocks per request
"""

from inkling_core.ops.activation import silu_and_mul
from inkling_core.ops.experts import experts, pack_experts, shared_experts
from inkling_core.ops.logits import logits
from inkling_core.ops.mxfp8 import dequantize_mxfp8, quantize_mxfp8
from inkling_core.ops.norm import rms_norm
from inkling_core.ops.nvfp4 import dequantize_nvfp4, quantize_nvfp4
from inkling_core.ops.qkvr_prep import QkvrWeights, qkvr_prep, query_scale
from inkling_core.ops.rel_attention import rel_attention
from inkling_core.ops.router import router
from inkling_core.ops.short_conv import short_conv

__all__ = [
    "QkvrWeights",
    "dequantize_mxfp8",
    "dequantize_nvfp4",
    "experts",
    "logits",
    "pack_experts",
    "qkvr_prep",
    "quantize_mxfp8",
    "quantize_nvfp4",
    "query_scale",
    "rel_attention",
    "rms_norm",
    "router",
    "shared_experts",
    "short_conv",
    "silu_and_mul",
]
