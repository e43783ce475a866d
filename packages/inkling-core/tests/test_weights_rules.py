"""`weights.rules`: the parts of all ranks put together are the tensor, and mean the same model."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from inkling_core.config import PRESETS, InklingConfig
from inkling_core.weights.errors import ShardingError
from inkling_core.weights.names import TensorSpec, text_tensors
from inkling_core.weights.rules import KvSplit, Replicate, check_tp, rank_range, usable_tp
from inkling_core.weights.tiny import TINY

SIZES = tuple(range(1, 9))


def part(tensor: Tensor, spec: TensorSpec, rank: int, size: int) -> Tensor:
    piece = rank_range(spec.shape, spec.rule, rank, size)
    return (
        tensor if piece is None else tensor.narrow(piece.dim, piece.start, piece.stop - piece.start)
    )


@st.composite
def models(draw: st.DrawFn) -> tuple[InklingConfig, int]:
    """A random geometry and a tensor-parallel size that it can be cut into."""
    size = draw(st.sampled_from(SIZES))
    kv, local_kv = (
        draw(st.sampled_from([g for g in (*SIZES, 16) if g % size == 0 or size % g == 0]))
        for _ in range(2)
    )
    heads = size * kv * local_kv * draw(st.integers(1, 2))
    config = TINY.replace(
        num_hidden_layers=3,
        local_layer_ids=(0, 2),
        hidden_size=draw(st.integers(1, 6)),
        num_attention_heads=heads,
        num_key_value_heads=kv,
        swa_num_key_value_heads=local_kv,
        head_dim=draw(st.integers(1, 3)),
        d_rel=draw(st.integers(1, 3)),
        vocab_size=320 * size,
        intermediate_size=size * draw(st.integers(1, 4)),
        moe_intermediate_size=size * draw(st.integers(1, 4)),
        n_routed_experts=draw(st.integers(3, 5)),
        mtp=None,
        vision=None,
        audio=None,
    )
    return config, size


@settings(deadline=None)
@given(models())
def test_parts_of_all_ranks_put_together_are_the_tensor(model: tuple[InklingConfig, int]) -> None:
    config, size = model
    check_tp(config, size - 1, size)
    assert size in usable_tp(config)
    for spec in text_tensors(config):
        whole = torch.arange(spec.size).reshape(spec.shape)
        parts = [part(whole, spec, rank, size) for rank in range(size)]
        assert len({one.shape for one in parts}) == 1
        if isinstance(spec.rule, Replicate):
            assert all(torch.equal(one, whole) for one in parts)
            continue
        copies = 1
        if isinstance(spec.rule, KvSplit):
            copies = max(1, size // (spec.shape[0] // spec.rule.unit))
        for start in range(0, size, copies):
            assert all(torch.equal(parts[start], parts[start + i]) for i in range(copies))
        assert torch.equal(torch.cat(parts[::copies], dim=spec.rule.dim), whole), spec.name


@pytest.mark.parametrize("size", [2, 4, 8])
def test_interleaved_shards_compute_the_same_mlp(size: int) -> None:
    """Each rank's run of whole gate/up pairs times its columns of w2, summed, is the whole MLP."""
    config = TINY.replace(hidden_size=5, intermediate_size=24, moe_intermediate_size=16)
    specs = {spec.key: spec for spec in text_tensors(config)}
    for layer, name in ((0, "mlp.w13_dn.weight"), (1, "mlp.shared_experts.shared_w13_weight")):
        w13 = specs[f"layers.{layer}.{name}"]
        w2 = specs[f"layers.{layer}.{name.replace('w13', 'w2').replace('w2_dn', 'w2_md')}"]
        generator = torch.Generator().manual_seed(1)
        a = torch.randn(w13.shape, generator=generator, dtype=torch.float64)
        b = torch.randn(w2.shape, generator=generator, dtype=torch.float64)
        x = torch.randn(3, 5, generator=generator, dtype=torch.float64)
        sums = [_mlp(x, part(a, w13, r, size), part(b, w2, r, size)) for r in range(size)]
        torch.testing.assert_close(torch.stack(sums).sum(0), _mlp(x, a, b), rtol=0, atol=1e-12)


def _mlp(x: Tensor, w13: Tensor, w2: Tensor) -> Tensor:
    hidden = x @ w13.transpose(-1, -2)
    gated = torch.nn.functional.silu(hidden[..., 0::2]) * hidden[..., 1::2]
    return gated @ w2.transpose(-1, -2)


@settings(deadline=None)
@given(models())
def test_every_rank_holds_the_kv_head_of_each_of_its_query_heads(
    model: tuple[InklingConfig, int],
) -> None:
    config, size = model
    specs = {spec.key: spec for spec in text_tensors(config)}
    for layer in range(3):
        heads, kv = config.num_attention_heads, config.kv_heads(layer)
        q, k = (specs[f"layers.{layer}.attn.{name}.weight"] for name in ("wq_du", "wk_dv"))
        q_heads = torch.arange(heads).repeat_interleave(config.head_dim)[:, None].expand(q.shape)
        k_heads = torch.arange(kv).repeat_interleave(config.head_dim)[:, None].expand(k.shape)
        for rank in range(size):
            mine_q = part(q_heads, q, rank, size)[:: config.head_dim, 0]
            mine_k = part(k_heads, k, rank, size)[:: config.head_dim, 0]
            group = len(mine_q) // len(mine_k)
            for local, head in enumerate(mine_q.tolist()):
                assert mine_k[local // group] == head // (heads // kv)


def test_usable_sizes_of_the_releases() -> None:
    assert usable_tp(PRESETS["inkling"]) == usable_tp(PRESETS["inkling_small"]) == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("rank", "size", "words"),
    [
        (0, 3, "num_attention_heads = 32 does not divide by tp_size = 3; usable sizes: 1, 2, 4, 8"),
        (0, 3, "num_key_value_heads = 8 can be neither split over nor shared by tp_size = 3"),
        (0, 16, "must be 1..8"),
        (0, 0, "must be 1..8"),
        (2, 2, "tp_rank = 2: must be 0..1"),
        (-1, 2, "tp_rank = -1"),
    ],
)
def test_sizes_that_do_not_divide_are_all_named(rank: int, size: int, words: str) -> None:
    with pytest.raises(ShardingError) as caught:
        check_tp(PRESETS["inkling_small"], rank, size)
    assert any(words in problem for problem in caught.value.problems)
    assert all(problem in str(caught.value) for problem in caught.value.problems)


def test_odd_sizes_work_where_everything_divides() -> None:
    config = TINY.replace(
        num_attention_heads=6,
        num_key_value_heads=3,
        swa_num_key_value_heads=1,
        vocab_size=330,
        moe_intermediate_size=33,
    )
    assert usable_tp(config) == [1, 3]
