"""mxfp8: every code and scale against the bits, the two scale rules, what quantising may lose."""

import block_oracle as oracle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inkling_core.ops import dequantize_mxfp8, quantize_mxfp8


def decoded(codes, scales, dtype=torch.float32):
    return dequantize_mxfp8(codes, scales, dtype)


def block(*values):
    """One block: the values, then zeros."""
    return torch.tensor([[*values, *[0.0] * (32 - len(values))]])


def test_every_code_under_every_scale_that_float32_holds():
    codes = torch.arange(256, dtype=torch.uint8).view(8, 32)
    scales = torch.arange(255, dtype=torch.uint8)[:, None, None].expand(255, 8, 1)
    found = decoded(codes.view(torch.float8_e4m3fn).expand(255, 8, 32), scales)
    exact = oracle.mxfp8(codes.numpy()[None].repeat(255, 0), scales.numpy())
    with np.errstate(over="ignore"):  # 448 * 2^127 is infinite in float32
        expected = exact.astype(np.float32)
    np.testing.assert_array_equal(found.numpy(), expected)
    assert int(found.isnan().sum()) == 2 * 255  # the two NaN codes, under every scale


def test_a_nan_scale_makes_its_block_nan_and_no_other():
    codes = torch.ones(1, 64).to(torch.float8_e4m3fn)
    found = decoded(codes, torch.tensor([[255, 127]], dtype=torch.uint8))
    assert found[0, :32].isnan().all() and (found[0, 32:] == 1).all()


@pytest.mark.parametrize("rule", ["ceil", "floor"])
def test_every_code_survives_a_round_trip(rule):
    """Beside 256, so that both rules pick the scale 1; -0 keeps its sign."""
    finite = torch.tensor([b for b in range(256) if b & 0x7F != 0x7F], dtype=torch.uint8)
    for code in finite.view(torch.float8_e4m3fn):
        codes, scales = quantize_mxfp8(block(256.0, float(code)), rule)
        assert scales.item() == 127
        assert codes[0, 1].view(torch.uint8) == code.view(torch.uint8)


@pytest.mark.parametrize("largest", [256, 300, 447, 448, 449, 480, 511, 512])
def test_the_rules_differ_exactly_beyond_seven_quarters(largest):
    ceil_codes, ceil_scale = quantize_mxfp8(block(float(largest)), "ceil")
    floor_codes, floor_scale = quantize_mxfp8(block(float(largest)), "floor")
    between = 448 < largest < 512
    assert ceil_scale.item() == 127 + (largest > 448)
    assert floor_scale.item() == 127 + (largest == 512)
    assert (ceil_scale != floor_scale).item() == between
    assert (decoded(floor_codes, floor_scale)[0, 0] == 448).item() == (447 <= largest < 512)
    if largest >= 480:  # half of 449 rounds to 224
        assert decoded(ceil_codes, ceil_scale)[0, 0] > 448


@given(st.integers(-126, 118), st.floats(1, 2, exclude_max=True, width=32))
def test_scales_of_a_largest_magnitude(exponent, mantissa):
    largest = mantissa * 2.0**exponent
    ceil, floor = (quantize_mxfp8(block(largest), rule)[1].item() for rule in ("ceil", "floor"))
    expected = exponent - 8 + 127
    assert floor == max(expected, 0)
    assert ceil == max(expected + (mantissa > 1.75), 0)


@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=32, max_size=32),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_ceil_never_saturates_and_rounds_to_the_nearest(values, dtype):
    x = torch.tensor([values]).to(dtype)
    codes, scales = quantize_mxfp8(x)
    scaled = x.double().numpy() / oracle.E8M0[scales.numpy()].repeat(32, -1)
    grid = np.unique(oracle.E4M3[~np.isnan(oracle.E4M3)])
    nearest = np.abs(scaled[..., None] - grid).min(-1)
    found = np.abs(oracle.E4M3[codes.view(torch.uint8).numpy()] - scaled)
    assert np.abs(scaled).max() <= 448
    np.testing.assert_array_equal(found, nearest)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["ceil", "floor"]))
def test_quantising_what_was_decoded_changes_nothing(seed, rule):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 96, generator=draw) * torch.randn(3, 1, generator=draw).exp()
    once = decoded(*quantize_mxfp8(x, rule))
    assert torch.equal(decoded(*quantize_mxfp8(once, rule)), once)


def test_zeros_and_leading_dimensions():
    codes, scales = quantize_mxfp8(torch.zeros(2, 3, 64))
    assert codes.shape == (2, 3, 64) and scales.shape == (2, 3, 2)
    assert (decoded(codes, scales) == 0).all() and (scales == 0).all()


@pytest.mark.parametrize(
    ("x", "rule", "words"),
    [
        (torch.zeros(1, 33), "ceil", "33 columns do not fill blocks of 32"),
        (torch.full((1, 32), float("nan")), "ceil", "NaN or infinite"),
        (torch.full((1, 32), float("inf")), "ceil", "NaN or infinite"),
        (torch.zeros(1, 32), "round", "must be 'ceil' or 'floor'"),
    ],
)
def test_refusals(x, rule, words):
    with pytest.raises(ValueError, match=words):
        quantize_mxfp8(x, rule)
