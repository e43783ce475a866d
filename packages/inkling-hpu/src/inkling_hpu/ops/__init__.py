"""The ops of `inkling_core.ops` for Gaudi: same files, names and signatures, on an `HpuStep`.

Not a second definition: tests hold every function to its namesake. Kernels stand behind
`inkling_hpu.markers`; without them the same code runs on a CPU. Shapes follow the legend of
`inkling_core.ops`; requests are rectangular rows (see `inkling_hpu.step`).
"""

from inkling_hpu.ops.activation import silu_and_mul
from inkling_hpu.ops.experts import experts, pack_experts, shared_experts
from inkling_hpu.ops.logits import logits
from inkling_hpu.ops.mxfp8 import dequantize_mxfp8, quantize_mxfp8
from inkling_hpu.ops.norm import rms_norm
from inkling_hpu.ops.nvfp4 import dequantize_nvfp4, quantize_nvfp4
from inkling_hpu.ops.qkvr_prep import qkvr_prep, query_scale
from inkling_hpu.ops.rel_attention import rel_attention
from inkling_hpu.ops.router import router
from inkling_hpu.ops.short_conv import short_conv

__all__ = [
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
