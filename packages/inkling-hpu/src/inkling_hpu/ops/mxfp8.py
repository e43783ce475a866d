"""MXFP8: the law's own bodies, plain torch. Law: `inkling_core.ops.mxfp8`.

Experts are decoded while they are read, on the host, so no e4m3 number reaches a Gaudi 2, where
it ends at 240; `inkling_core.packed_experts` refuses the device.
"""

from inkling_core.ops.mxfp8 import dequantize_mxfp8, quantize_mxfp8

__all__ = ["dequantize_mxfp8", "quantize_mxfp8"]
