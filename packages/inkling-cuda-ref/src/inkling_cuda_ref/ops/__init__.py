"""Triton kernels under the names and signatures of `inkling_core.ops`.

Not a definition: every function is held to its namesake there by tests, in Triton's interpreter
where there is no GPU. Shape legend and meaning of each argument: `inkling_core.ops`.
"""

from inkling_cuda_ref.ops.activation import silu_and_mul
from inkling_cuda_ref.ops.experts import experts, pack_experts, shared_experts
from inkling_cuda_ref.ops.logits import logits
from inkling_cuda_ref.ops.mxfp8 import dequantize_mxfp8, quantize_mxfp8
from inkling_cuda_ref.ops.norm import rms_norm
from inkling_cuda_ref.ops.nvfp4 import dequantize_nvfp4, quantize_nvfp4
from inkling_cuda_ref.ops.qkvr_prep import qkvr_prep, query_scale
from inkling_cuda_ref.ops.rel_attention import rel_attention
from inkling_cuda_ref.ops.router import router
from inkling_cuda_ref.ops.short_conv import short_conv

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
