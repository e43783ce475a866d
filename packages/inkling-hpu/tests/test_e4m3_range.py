"""e4m3_range: no code beyond 240, and exactly which values are moved, by how much."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inkling_core.ops import (
    dequantize_mxfp8,
    dequantize_nvfp4,
    quantize_mxfp8,
    quantize_nvfp4,
)
from inkling_hpu.e4m3_range import fit_mxfp8, fit_nvfp4

FINITE = torch.tensor([byte for byte in range(256) if byte & 0x7F != 0x7F], dtype=torch.uint8)
ODD_AND_SMALL = 16


def value(codes, scales):
    return dequantize_mxfp8(codes, scales, torch.float32)


def beside(code, largest):
    """Blocks of `largest`, then each of `code`, then zeros."""
    blocks = torch.zeros(len(code), 32)
    blocks[:, 0], blocks[:, 1] = largest, code
    return blocks.to(torch.float8_e4m3fn)


def test_every_code_beside_one_beyond_the_range():
    """Halved exactly but for 16 codes, which move by 2^-10 times the old scale."""
    code = FINITE.view(torch.float8_e4m3fn).float()
    codes, scales = beside(code, 448.0), torch.full((len(code), 1), 100, dtype=torch.uint8)
    fitted, moved = fit_mxfp8(codes, scales)
    assert (moved == 101).all() and fitted.float().abs().max() == 224
    error = (value(fitted, moved) - value(codes, scales)).abs()[:, 1] / 2.0 ** (100 - 127)
    wrong = error > 0
    assert int(wrong.sum()) == ODD_AND_SMALL
    assert (error[wrong] == 2.0**-9).all()
    assert (code[wrong].abs() < 2.0**-5).all()
    assert ((code[wrong].abs() * 2**9) % 2 == 1).all()
    assert 2.0**-9 / 256 == 2.0**-17  # of the least code beyond 240


def test_every_code_beside_none_beyond_the_range_stays():
    code = FINITE.view(torch.float8_e4m3fn).float()
    code = code[code.abs() <= 240]
    codes, scales = beside(code, 240.0), torch.full((len(code), 1), 100, dtype=torch.uint8)
    fitted, moved = fit_mxfp8(codes, scales)
    assert torch.equal(fitted.view(torch.uint8), codes.view(torch.uint8))
    assert torch.equal(moved, scales)


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["ceil", "floor"]))
def test_random_blocks(seed, rule):
    x = torch.randn(7, 96, generator=torch.Generator().manual_seed(seed))
    codes, scales = quantize_mxfp8(x, rule)
    fitted, moved = fit_mxfp8(codes, scales)
    assert fitted.float().abs().max() <= 240
    blocks = value(codes, scales).unflatten(-1, (3, 32))
    error = (value(fitted, moved).unflatten(-1, (3, 32)) - blocks).abs().amax(-1)
    assert (error <= 2.0**-17 * blocks.abs().amax(-1)).all()
    beyond = codes.float().abs().unflatten(-1, (3, 32)).amax(-1) > 240
    assert torch.equal(moved.int() - scales.int(), beyond.int())


def test_a_largest_scale_cannot_grow():
    codes = torch.full((1, 32), 256.0).to(torch.float8_e4m3fn)
    with pytest.raises(ValueError, match=r"the scale 2\^127"):
        fit_mxfp8(codes, torch.full((1, 1), 254, dtype=torch.uint8))


def test_nvfp4_scales_of_four_over_six_and_of_plain():
    draw = torch.Generator().manual_seed(0)
    x_ERC = torch.randn(3, 8, 64, generator=draw)
    x_ERC[2] = 0
    amax_E = x_ERC.abs().amax((1, 2)).clamp(min=0)
    codes, scales = quantize_nvfp4(x_ERC, amax_E[:, None])
    fitted, outer_E = fit_nvfp4(scales, amax_E)
    assert scales[:2].float().amax((1, 2)).min() >= 256 and fitted.float().max() <= 240
    assert torch.equal(outer_E, torch.tensor([2.0, 2.0, 1.0]) * amax_E)
    denominator = torch.tensor(1536.0)
    before, after = (
        dequantize_nvfp4(codes, s, a[:, None], denominator, torch.float32)
        for s, a in ((scales, amax_E), (fitted, outer_E))
    )
    assert torch.equal(before, after)  # no block scale of these is below 2^-5 and odd


def test_every_nvfp4_scale():
    """The same 8 of 127: block scales have no sign."""
    scales = FINITE[:127].view(torch.float8_e4m3fn).view(1, 127, 1)
    fitted, outer_E = fit_nvfp4(scales, torch.tensor([3.0]))
    assert outer_E.item() == 6
    wrong = fitted.float() * 2 != scales.float()
    assert int(wrong.sum()) == ODD_AND_SMALL // 2
    assert (scales.float()[wrong] < 2.0**-5).all()
