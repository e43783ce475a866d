"""MXFP8: the law's own bodies, plain torch. Law: `inkling_core.ops.mxfp8`.

Not a kernel: weights are decoded while they are read, and quantised activations serve comparisons
bit by bit, not speed.
"""

from inkling_core.ops.mxfp8 import dequantize_mxfp8, quantize_mxfp8

__all__ = ["dequantize_mxfp8", "quantize_mxfp8"]
