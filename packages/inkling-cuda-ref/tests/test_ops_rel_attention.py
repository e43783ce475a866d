"""rel_attention against the core over NaN-poisoned pages.

GQA groups of 4, 6 and 8; 1 and 17 queries against contexts around block and tile edges; ragged
batches; windows. The bias has to matter: without it the output moves by at least five limits.
"""

import pytest
import torch

pytest.importorskip("triton", reason="needs triton, which the kernels are written in")

from parity_cases import DEVICE, Draw, dtypes, hold, sample, scattered_step, sizes

from inkling_core import ops as law
from inkling_core.parity.compare import difference
from inkling_core.parity.tolerances import tolerance
from inkling_cuda_ref import ops

WIDTH, EXTENT, BLOCK = 16, 1024, 128
GROUPS = sample([4, 6, 8], [6])
SEEN = sample([1, 127, 128, 129, 900, 1023, 1024, 1025, 4096], [1, 128, 1025])
LENGTHS = [1, 17]


def pages(draw, step, num_blocks, kv_heads):
    """Random keys or values at every position of the step's requests, NaN everywhere else.

    Below 4, where bfloat16 is finer than the table's absolute limit.
    """
    shape = (num_blocks * step.block_size, kv_heads, WIDTH)
    pool = torch.full(shape, float("nan"), dtype=draw.dtype, device=DEVICE)
    for q, (context, length) in enumerate(zip(step.contexts, step.lengths, strict=True)):
        positions = torch.arange(context + length, device=DEVICE)
        blocks = step.block_table_QM[q, positions // step.block_size]
        slots = blocks * step.block_size + positions % step.block_size
        pool[slots] = draw(len(positions), kv_heads, WIDTH, scale=0.6)
    return pool.unflatten(0, (num_blocks, step.block_size))


def given(dtype, lengths, contexts, *, group=4, kv_heads=2, extent=EXTENT, block=BLOCK, padding=2):
    """Arguments without the window; scores and bias are of one size, so that both decide."""
    step, num_blocks = scattered_step(lengths, contexts, block, padding)
    draw = Draw(dtype, sum(contexts) + group)
    total, heads = len(step.positions_T), group * kv_heads
    q_TNH, rel_TNR = draw(total, heads, WIDTH, scale=10.0), draw(total, heads, extent, scale=3.0)
    q_TNH[step.num_tokens :], rel_TNR[step.num_tokens :] = float("nan"), float("nan")
    keys, values = (pages(draw, step, num_blocks, kv_heads) for _ in range(2))
    return q_TNH, rel_TNR, keys, values, step


def check(arguments, window):
    actual = ops.rel_attention(*arguments, window)
    expected = law.rel_attention(*arguments, window)
    hold("rel_attention", actual, expected, "attention")
    assert not actual[arguments[-1].num_tokens :].any(), "padding rows are zeros"
    return expected


def bias_matters(arguments, window, expected):
    """At least five limits, by every limit that the table sets."""
    q_TNH, rel_TNR, *rest = arguments
    without = law.rel_attention(q_TNH, torch.zeros_like(rel_TNR), *rest, window)
    found = difference(without, expected)
    limit = tolerance("rel_attention", q_TNH.dtype, "cuda_ref")
    for effect, bound in ((found.max_abs, limit.max_abs), (found.rms_ratio, limit.rms_ratio)):
        assert bound is None or effect >= 5 * bound, f"{effect} is below five limits of {bound}"


@dtypes()
@pytest.mark.parametrize("group", GROUPS, ids=lambda n: f"X{n}")
@pytest.mark.parametrize("length", LENGTHS, ids=lambda n: f"q{n}")
@pytest.mark.parametrize("seen", SEEN, ids=lambda n: f"k{n}")
def test_few_queries_against_a_context(seen, length, group, dtype):
    """The first query sees `seen` keys, its own included."""
    arguments = given(dtype, [length], [seen - 1], group=group, kv_heads=1)
    expected = check(arguments, None)
    if seen + length > 2:  # one query and its own key: whatever the bias, the answer is the value
        bias_matters(arguments, None, expected)


@dtypes()
@sizes()
@pytest.mark.parametrize("window", [None, 100], ids=["global", "W100"])
def test_prefill(size, dtype, window):
    check(given(dtype, [size], [0], group=4, kv_heads=1, extent=64), window)


@dtypes()
@pytest.mark.parametrize("window", sample([None, 1, 3, 48, 512], [None, 48]), ids=lambda w: f"W{w}")
@pytest.mark.parametrize("requests", sample(range(1, 9), [1, 8]), ids=lambda n: f"Q{n}")
def test_ragged_batches(requests, window, dtype):
    """Decodes, chunks and whole prompts side by side, at positions around block edges."""
    lengths = [1, 5, 1, 63, 1, 33, 2, 1][:requests]
    contexts = [40, 0, 96, 62, 31, 64, 0, 513][:requests]
    check(given(dtype, lengths, contexts, group=4, extent=33, block=32), window)


@pytest.mark.parametrize("extent", [1, 33, 300, 4000], ids=lambda r: f"R{r}")
def test_extents_around_tiles(extent):
    check(given(torch.float32, [1, 17], [900, 600], group=6, kv_heads=1, extent=extent), None)


@pytest.mark.parametrize("context", [31, 511, 512, 513, 1023])
def test_the_window_edge_is_exact(context):
    """Zero queries weigh all visible keys alike: the visible ones are the last `window`."""
    window, length = 512, context + 1
    step, num_blocks = scattered_step([1], [context], BLOCK)
    q_TNH = torch.zeros(1, 4, WIDTH, device=DEVICE)
    rel_TNR = torch.zeros(1, 4, 8, device=DEVICE)
    draw = Draw(torch.float32, 0)
    keys, values = (pages(draw, step, num_blocks, 1) for _ in range(2))
    out = ops.rel_attention(q_TNH, rel_TNR, keys, values, step, window)
    positions = torch.arange(max(0, length - window), length, device=DEVICE)
    slots = step.block_table_QM[0, positions // BLOCK] * BLOCK + positions % BLOCK
    mean = values.flatten(0, 1)[slots, 0].mean(0)
    hold("rel_attention", out[0, 0], mean, "mean of the visible values")


def test_nan_of_one_request_stays_with_it():
    q_TNH, rel_TNR, keys, values, step = given(torch.float32, [1, 1, 70], [90, 20, 3], block=32)
    clean = ops.rel_attention(q_TNH, rel_TNR, keys, values, step, None)
    values[step.block_table_QM[0, 0]] = float("nan")
    out = ops.rel_attention(q_TNH, rel_TNR, keys, values, step, None)
    assert out[0].isnan().all()
    assert torch.equal(out[1:], clean[1:])


def test_pages_may_be_views_into_larger_ones():
    """An engine's page holds keys, values and more: strides are the tensor's own."""
    q_TNH, rel_TNR, keys, values, step = given(torch.float32, [5, 1], [30, 70], block=32)
    expected = ops.rel_attention(q_TNH, rel_TNR, keys, values, step, 48)
    page = torch.full((*keys.shape[:2], 2, *keys.shape[2:]), float("nan"), device=DEVICE)
    page[:, :, 0], page[:, :, 1] = keys, values
    out = ops.rel_attention(q_TNH, rel_TNR, page[:, :, 0], page[:, :, 1], step, 48)
    assert torch.equal(out, expected)


def test_no_tensor_of_tokens_by_tokens(monkeypatch):
    """Nothing that the op allocates for a prefill grows with the square of its length."""
    arguments = given(torch.float32, [513], [0], group=4, kv_heads=1, extent=16)
    largest = []
    for name in ("empty", "empty_like", "zeros"):
        original = getattr(torch, name)

        def kept(*args, original=original, **kwargs):
            out = original(*args, **kwargs)
            largest.append(out.numel())
            return out

        monkeypatch.setattr(torch, name, kept)
    ops.rel_attention(*arguments, None)
    assert largest and max(largest) <= arguments[0].numel() < 513 * 513
