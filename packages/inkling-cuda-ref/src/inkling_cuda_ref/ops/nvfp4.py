"""NVFP4: the law's own bodies, plain torch. Law: `inkling_core.ops.nvfp4`.

Not a kernel: weights are decoded while they are read, and quantised activations serve comparisons
bit by bit, not speed.
"""

from inkling_core.ops.nvfp4 import dequantize_nvfp4, quantize_nvfp4

__all__ = ["dequantize_nvfp4", "quantize_nvfp4"]
