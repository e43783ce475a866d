"""NVFP4: the law's own bodies, plain torch. Law: `inkling_core.ops.nvfp4`.

Experts are decoded while they are read, on the host, so no e4m3 number reaches a Gaudi 2, where
it ends at 240; `inkling_core.packed_experts` refuses the device.
"""

from inkling_core.ops.nvfp4 import dequantize_nvfp4, quantize_nvfp4

__all__ = ["dequantize_nvfp4", "quantize_nvfp4"]
