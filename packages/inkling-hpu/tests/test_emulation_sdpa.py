"""FusedSDPA against attention written out with loops, and the rules its callers trip over."""

import math

import pytest
import torch

from inkling_hpu.emulation import sdpa
from inkling_hpu.emulation.sdpa import FusedSDPA

SHAPES = [(1, 2, 2, 5, 5), (2, 4, 2, 3, 8), (1, 8, 1, 7, 129), (3, 4, 4, 1, 63)]
NAMES = [f"B{b}-N{n}-G{g}-Q{q}-S{s}" for b, n, g, q, s in SHAPES]


def tensors(batch, heads, groups, queries, keys, width=16):
    generator = torch.Generator().manual_seed(queries * 1000 + keys)
    sizes = [(heads, queries), (groups, keys), (groups, keys)]
    return [torch.randn(batch, *size, width, generator=generator) for size in sizes]


def by_hand(q, k, v, visible, added=None, scale=None):
    """Softmax attention row by row in float64; visible(b, i, j) says which keys count."""
    batch, heads, queries, width = q.shape
    groups = heads // k.shape[1]
    out = torch.zeros_like(q, dtype=torch.float64)
    for b in range(batch):
        for n in range(heads):
            for i in range(queries):
                keys = [j for j in range(k.shape[2]) if visible(b, i, j)]
                rows = k[b, n // groups, keys].double()
                logits = rows @ q[b, n, i].double() * (scale or 1 / math.sqrt(width))
                if added is not None:
                    logits = (
                        logits + added[b % added.shape[0], n % added.shape[1], i, keys].double()
                    )
                out[b, n, i] = logits.softmax(-1) @ v[b, n // groups, keys].double()
    return out


def apply(q, k, v, mask=None, causal=False, scale=None, lengths=None, window=(-1, -1)):
    return FusedSDPA.apply(
        q,
        k,
        v,
        mask,
        0.0,
        causal,
        scale,
        "fast",
        True,
        lengths,
        "right",
        False,
        False,
        window,
        None,
    )


@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_causal_counts_from_the_newest_key(shape):
    q, k, v = tensors(*shape)
    shift = shape[4] - shape[3]
    want = by_hand(q, k, v, lambda b, i, j: j <= i + shift)
    assert torch.allclose(apply(q, k, v, causal=True).double(), want, atol=2e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
@pytest.mark.parametrize("per_head", [False, True], ids=["shared-mask", "mask-per-head"])
def test_masks_are_added(shape, per_head):
    q, k, v = tensors(*shape)
    heads = shape[1] if per_head else 1
    mask = torch.randn(shape[0], heads, shape[3], shape[4]) * 3
    want = by_hand(q, k, v, lambda b, i, j: True, mask, 0.25)
    assert torch.allclose(apply(q, k, v, mask, scale=0.25).double(), want, atol=2e-6)


def test_valid_lengths_hide_the_right_padding():
    q, k, v = tensors(2, 2, 1, 6, 6)
    lengths = torch.tensor([4, 6])
    want = by_hand(q, k, v, lambda b, i, j: j <= i and j < lengths[b])
    assert torch.allclose(apply(q, k, v, causal=True, lengths=lengths).double(), want, atol=2e-6)


def test_windows_hide_old_keys():
    q, k, v = tensors(1, 2, 2, 9, 9)
    want = by_hand(q, k, v, lambda b, i, j: j <= i and i - j <= 3)
    assert torch.allclose(apply(q, k, v, causal=True, window=(3, 0)).double(), want, atol=2e-6)


def test_the_dtype_of_the_queries_comes_back():
    q, k, v = (x.bfloat16() for x in tensors(1, 2, 1, 3, 3))
    assert apply(q, k, v, causal=True).dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengths": torch.tensor([3])}, "valid_seq_len needs is_causal"),
        ({"mask": torch.zeros(1, 1, 3, 3), "causal": True}, "cannot be combined"),
        ({"mask": torch.zeros(1, 1, 1, 3)}, "does not fit"),
        ({"mask": torch.zeros(1, 3, 3, 3)}, "does not fit"),
        ({"mask": torch.zeros(3, 3)}, "does not fit"),
    ],
    ids=["lengths-alone", "mask-and-causal", "mask-rows", "mask-heads", "mask-rank"],
)
def test_what_the_bridge_refuses(arguments, message):
    q, k, v = tensors(1, 2, 1, 3, 3)
    with pytest.raises(ValueError, match=message):
        apply(q, k, v, **arguments)


def test_a_mask_of_two_gibibytes_is_refused(monkeypatch):
    monkeypatch.setattr(sdpa, "MASK_BYTES", 4 * 3 * 3)
    q, k, v = tensors(1, 1, 1, 3, 3)
    apply(q, k, v, torch.zeros(1, 1, 3, 3, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="36 bytes; below 36 is safe"):
        apply(q, k, v, torch.zeros(1, 1, 3, 3))


def test_two_parts_merge_by_maximum_and_sum():
    q, k, v = tensors(1, 4, 2, 3, 10)
    whole = sdpa.attend(q, k, v, None, None, None)
    parts = [
        sdpa.attend(q, k[:, :, at], v[:, :, at], None, None, None)
        for at in (slice(4), slice(4, 10))
    ]
    top = torch.maximum(parts[0].row_max, parts[1].row_max)
    sums = [(part.row_max - top).exp() / part.inverse_sum for part in parts]
    merged = (parts[0].out * sums[0] + parts[1].out * sums[1]) / (sums[0] + sums[1])
    assert torch.allclose(merged, whole.out, atol=1e-6)


def recomp(q, k, v, mask=None, mode="fast"):
    sdpa.register()
    return torch.ops.hpu.sdpa_recomp_fwd(q, k, v, mask, 0.0, 0.25, False, True, mode, None, "right")


@pytest.mark.parametrize("mask_heads", [None, 1, 4])
def test_heads_by_group_give_what_four_dimensions_give(mask_heads):
    q, k, v = tensors(2, 4, 2, 3, 8)
    mask = None if mask_heads is None else torch.randn(2, mask_heads, 3, 8)
    whole = recomp(q, k, v, mask)
    assert sdpa.is_gqa(q, k) and not sdpa.is_gqa(q, q)
    grouped = sdpa.gqa_input_reshape_fwd(q, k, v, mask)
    assert grouped[0].shape == (2, 2, 2, 3, 16) and grouped[1].shape == (2, 2, 1, 8, 16)
    found = [sdpa.gqa_output_reshape(x) for x in recomp(*grouped)[:3]]
    assert all(torch.equal(a, b) for a, b in zip(found, whole, strict=False))
    added = mask if mask is None else mask.expand(2, 4, 3, 8)
    want = by_hand(q, k, v, lambda b, i, j: True, added, 0.25)
    assert torch.allclose(found[0].double(), want, atol=2e-6)


@pytest.mark.parametrize(("mode", "factor"), [("fast", 128), ("fast", 3), ("fp32", 1)])
def test_row_sums_carry_the_factor_of_the_mode(mode, factor, monkeypatch):
    q, k, v = tensors(1, 2, 2, 3, 8)
    if factor != 128:  # the default
        monkeypatch.setenv("INKLING_EMULATED_SUM_FACTOR", "3")
    _, top, inverse, _ = recomp(q, k, v, mode=mode)
    scores = 0.25 * q @ k.transpose(-1, -2)
    assert torch.allclose(top[..., 0], scores.amax(-1))
    sums = (scores - scores.amax(-1, keepdim=True)).exp().sum(-1)
    assert torch.allclose(1 / inverse[..., 0], factor * sums)
