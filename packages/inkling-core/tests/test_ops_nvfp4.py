"""nvfp4: every byte under every scale against the bits, and Four-Over-Six block by block."""

import block_oracle as oracle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inkling_core.ops import dequantize_nvfp4, quantize_nvfp4
from inkling_core.ops.nvfp4 import _candidate

ONE = torch.tensor(1.0)
D = torch.tensor(1536.0)


def values(codes):
    """e2m1 values of packed codes."""
    return oracle.nvfp4_columns(codes.numpy())


def errors(x, codes, scales, amax):
    """Sum of absolute errors of each block, in float32 as the law does."""
    decoded = dequantize_nvfp4(codes, scales, amax, D, torch.float32)
    return (decoded - x).abs().unflatten(-1, (-1, 16)).sum(-1)


def test_every_byte_under_every_scale():
    codes = torch.arange(256, dtype=torch.uint8).view(1, 32, 8)
    scales = torch.arange(256, dtype=torch.uint8)[:, None, None].expand(256, 32, 1)
    amax, denominator = torch.full((256,), 0.0371), torch.full((256,), 1536.0)
    found = dequantize_nvfp4(
        codes.expand(256, 32, 8),
        scales.contiguous().view(torch.float8_e4m3fn),
        amax[:, None],
        denominator[:, None],
        torch.float32,
    )
    numbers = amax.numpy(), denominator.numpy()
    expected = oracle.nvfp4(codes.numpy().repeat(256, 0), scales.numpy(), *numbers)
    np.testing.assert_array_equal(found.numpy(), expected)
    assert int(found.isnan().any(-1).any(-1).sum()) == 2  # under the two NaN scales


def test_the_order_of_operations_shows_in_bf16():
    """Scale times factor first differs in the last place here and there.

    A weight's amax is a bf16 number, so that a value 3 * 2^n over 1536 lies next to a tie of bf16.
    """
    draw = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 256, (32, 1, 512), generator=draw, dtype=torch.uint8)
    scales = torch.randint(1, 0x7E, (32, 1, 64), generator=draw, dtype=torch.uint8)
    e4m3, amax = scales.view(torch.float8_e4m3fn), torch.rand(32, generator=draw).bfloat16().float()
    found = dequantize_nvfp4(codes, e4m3, amax[:, None], D, torch.bfloat16)
    expected = oracle.nvfp4(codes.numpy(), scales.numpy(), amax.numpy(), D.numpy())
    np.testing.assert_array_equal(found.float().numpy(), oracle.to_bf16(expected))
    factor = (e4m3.float() * (amax / D)[:, None, None]).repeat_interleave(16, -1)
    other = torch.from_numpy(values(codes)).float() * factor
    assert 0 < (found != other.bfloat16()).float().mean() < 0.02


FACTS = [
    ([10.0, 20.0, 30.0, 40.0] * 4, 10.0, 0.0, [1, 2, 3, 4]),
    ([6.0, 5.0] + [0.0] * 14, 1.5, 0.5, [4, 3, 0]),
    ([6.0, 4.5] + [0.0] * 14, 1.5, 0.0, [4, 3, 0]),
    ([6.0] + [3.0] * 15, 1.0, 0.0, [6, 3, 3]),
    (torch.linspace(0.1, 6, 16).tolist(), 1.5, 4.28, [0, 0.5, 0.5, 1, 1, 1.5]),
    ([1.0] * 16, 0.25, 0.0, [4] * 16),
    ([0.0] * 16, 0.0, 0.0, [0] * 16),
]


@pytest.mark.parametrize(("block", "scale", "error", "first"), FACTS)
def test_known_blocks(block, scale, error, first):
    """With amax = denominator the candidate scales are b / 6 and b / 4."""
    x = torch.tensor([block])
    codes, scales = quantize_nvfp4(x, D)
    assert scales.float().item() == scale
    assert values(codes)[0, : len(first)].tolist() == first
    assert errors(x, codes, scales, D).item() == pytest.approx(error, abs=1e-6)


SIX_ONLY = [
    ([10.0, 20.0, 30.0, 40.0] * 4, 6.5, 23.0),
    ([6.0, 5.0] + [0.0] * 14, 1.0, 1.0),
    ([6.0, 4.5] + [0.0] * 14, 1.0, 0.5),
    ([6.0] + [3.0] * 15, 1.0, 0.0),
    (torch.linspace(0.1, 6, 16).tolist(), 1.0, 4.3533),
    ([1.0] * 16, 0.171875, 0.5),
]


@pytest.mark.parametrize(("block", "scale", "error"), SIX_ONLY)
def test_the_candidate_that_was_turned_down(block, scale, error):
    x = torch.tensor([block])
    codes, scales = quantize_nvfp4(x, D, four_over_six=False)
    assert scales.float().item() == scale
    assert errors(x, codes, scales, D).item() == pytest.approx(error, abs=1e-4)


def test_a_gaussian_takes_four_in_a_third_of_its_blocks():
    x = torch.tensor(np.random.default_rng(0).standard_normal((4096, 16)), dtype=torch.float32)
    amax = x.abs().max()
    both, six = quantize_nvfp4(x, amax), quantize_nvfp4(x, amax, four_over_six=False)
    assert (both[1].float() != six[1].float()).float().mean().item() == pytest.approx(
        0.342, abs=5e-4
    )
    assert errors(x, *both, amax).mean().item() / 16 == pytest.approx(0.06754, abs=5e-6)
    assert errors(x, *six, amax).mean().item() / 16 == pytest.approx(0.07129, abs=5e-6)


FLOATS = st.floats(-1e4, 1e4, width=32).filter(lambda x: x == 0 or abs(x) > 1e-20)


@given(st.lists(FLOATS, min_size=32, max_size=32), st.floats(1, 64, width=32))
def test_no_block_is_worse_than_with_six(numbers, room):
    x = torch.tensor([numbers])
    amax = x.abs().amax(-1) * room
    both, six = quantize_nvfp4(x, amax), quantize_nvfp4(x, amax, four_over_six=False)
    assert (errors(x, *both, amax) <= errors(x, *six, amax)).all()
    tied = errors(x, *both, amax) == errors(x, *six, amax)
    assert torch.equal(both[1].float()[tied], six[1].float()[tied])  # ties go to 6
    assert both[1].float().max() <= 384 and six[1].float().max() <= 256


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_codes_are_the_nearest_on_the_grid(seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 48, generator=draw)
    amax = x.abs().amax(-1)
    codes, scales = quantize_nvfp4(x, amax)
    step = oracle.E4M3[scales.view(torch.uint8).numpy()] * (amax.double().numpy() / 1536)[:, None]
    scaled = x.double().numpy() / step.repeat(16, -1)
    nearest = np.abs(scaled[..., None] - oracle.E2M1).min(-1)
    np.testing.assert_allclose(np.abs(values(codes) - scaled), nearest, atol=1e-6)


TIES = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]


def test_rounding_ties_go_to_even_codes_with_their_sign():
    """A block that holds 6 has the scale 1; zeros keep their sign."""
    for tie, even in zip(TIES, [0, 1, 1, 2, 2, 4, 4], strict=True):
        x = torch.tensor([[6.0, tie, -tie] + [0.0] * 13])
        codes, scales = quantize_nvfp4(x, D, four_over_six=False)
        assert scales.float().item() == 1
        assert values(codes)[0, 1:3].tolist() == [even, -even]
    zeros = quantize_nvfp4(torch.tensor([[6.0, 0.25, -0.25, -0.0] + [0.0] * 12]), D)[0]
    assert zeros[0, 0].item() >> 4 == 0 and zeros[0, 1].item() == 0x88  # +0, then -0 and -0


def test_a_block_below_the_least_scale_is_zero_and_one_above_it_saturates():
    faint = torch.full((1, 16), 6 * 2.0**-11)  # b / 6 is a quarter of the least e4m3 step
    codes, scales = quantize_nvfp4(faint, D, four_over_six=False)
    assert scales.float().item() == 0 and (codes == 0).all()
    rounded_down = torch.full((1, 16), 6 * 1.49 * 2.0**-9)  # 8.9 steps of the grid: ends at 6
    codes, scales = quantize_nvfp4(rounded_down, D, four_over_six=False)
    assert scales.float().item() == 2.0**-9 and (values(codes) == 6).all()


def test_an_outer_scale_a_token():
    """Each row with its own amax gives what the row alone gives."""
    x = torch.randn(7, 32, generator=torch.Generator().manual_seed(1)) * torch.arange(1, 8)[:, None]
    amax_T = x.abs().amax(-1)
    codes, scales = quantize_nvfp4(x, amax_T)
    for row in range(7):
        alone = quantize_nvfp4(x[row], amax_T[row])
        assert torch.equal(codes[row], alone[0])
        assert torch.equal(scales[row].float(), alone[1].float())


def test_values_beyond_amax_saturate():
    """An amax that is not the largest magnitude, as of other tokens: no scale turns into NaN."""
    x = torch.zeros(1, 16)
    x[0, :2] = torch.tensor([100.0, -1.0])
    codes, scales = quantize_nvfp4(x, torch.ones(1), 2688.0, four_over_six=False)
    assert scales.float().tolist() == [[448.0]]
    found = dequantize_nvfp4(codes, scales, torch.ones(1), torch.full((1,), 2688.0), torch.float32)
    assert found[0, :2].tolist() == [1.0, -1.0]


def test_the_denominator_of_plain_nvfp4_leaves_four_no_room():
    """2688 * 1.5 / 6 = 672 is past e4m3: the scale saturates and the largest value is lost."""
    with pytest.raises(ValueError, match=r"block scales up to 672, e4m3 ends at 448; use 1536"):
        quantize_nvfp4(torch.ones(1, 16), ONE, 2688.0)
    blocks, amax = torch.tensor([[[10.0, 20.0, 30.0, 40.0] * 4]]), torch.tensor([[40.0]])
    for denominator, scale, error in ((1536.0, 384, 0.0), (2688.0, 448, 40.0)):
        wanted = blocks.amax(-1) / 6 * (denominator / amax) * 1.5
        _, rounded, lost = _candidate(blocks, wanted, amax, denominator)
        assert rounded.item() == scale
        assert (lost.item() > 1) == (error > 1)
    codes, scales = quantize_nvfp4(blocks[0], amax[0], 2688.0, four_over_six=False)
    assert scales.float().item() == 448 and values(codes)[0, 3] == 6


@pytest.mark.parametrize(
    ("x", "amax", "words"),
    [
        (torch.zeros(1, 17), ONE, "17 columns do not fill blocks of 16"),
        (torch.full((1, 16), float("nan")), ONE, "NaN or infinite"),
        (torch.ones(1, 16), 0 * ONE, "amax must be positive"),
        (torch.ones(1, 16), -ONE, "amax must be positive"),
        (torch.ones(1, 16), ONE / 0, "amax must be positive"),
    ],
)
def test_refusals(x, amax, words):
    with pytest.raises(ValueError, match=words):
        quantize_nvfp4(x, amax)
