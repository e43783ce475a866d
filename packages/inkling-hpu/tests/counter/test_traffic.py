"""traffic.py: bytes of one op."""

import pytest
import torch

from inkling_hpu import markers
from inkling_hpu.counter.mode import OpCounter
from inkling_hpu.counter.traffic import distinct_experts


def moved(run, *args):
    with OpCounter() as counter:
        run(*args)
    return counter.tally.total().bytes


def meta(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


X = 3 * 5 * 4  # bytes of a float32 [3, 5]
HALF = torch.bfloat16


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(lambda: meta(3, 5) + meta(3, 5), 3 * X, id="operands-and-result"),
        pytest.param(lambda: meta(3, 5) + meta(5), 2 * X + 20, id="broadcast-operand"),
        pytest.param(lambda: meta(3, 1).expand(3, 5).neg(), 12 + X, id="expanded-operand"),
        pytest.param(lambda: meta(3, 5).to(HALF), X + X // 2, id="cast"),
        pytest.param(lambda: meta(3, 5).add_(1), 2 * X, id="in-place"),
        pytest.param(lambda: meta(3, 5).copy_(meta(3, 5)), 2 * X, id="copy"),
        pytest.param(lambda: meta(3, 5).zero_(), X, id="fill"),
        pytest.param(lambda: meta(3, 5).t().contiguous(), 2 * X, id="transposed-copy"),
        pytest.param(
            lambda: torch.mm(meta(3, 4), meta(4, 5), out=meta(3, 5)), 48 + 80 + X, id="out-argument"
        ),
        pytest.param(lambda: torch.cat([meta(3, 5), meta(3, 5)]), 4 * X, id="list-of-operands"),
        pytest.param(lambda: meta(3, 5).split(2), 0, id="view"),
    ],
)
def test_operands_and_results(run, expected):
    assert moved(run) == expected


ROWS = torch.empty(7, dtype=torch.int64, device="meta")


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda table: table.index_select(0, ROWS), id="index-select"),
        pytest.param(lambda table: table[ROWS], id="index"),
        pytest.param(lambda table: torch.embedding(table, ROWS), id="embedding"),
        pytest.param(lambda table: table.gather(0, ROWS[:, None].expand(7, 5)), id="gather"),
        pytest.param(lambda table: table.index_copy_(0, ROWS, meta(7, 5)), id="index-copy"),
        pytest.param(lambda table: table.index_put_((ROWS,), meta(7, 5)), id="index-put"),
    ],
)
def test_gathers_and_scatters_move_the_rows_and_not_the_table(run):
    assert moved(run, meta(1000, 5)) == 2 * 7 * 5 * 4


@pytest.mark.parametrize("tokens", [1, 3, 16, 1000])
def test_experts_are_read_once_each(tokens):
    w13, w2 = meta(256, 6, 8, dtype=HALF), meta(256, 8, 3, dtype=HALF)
    ids = torch.empty(tokens, 6, dtype=torch.int64, device="meta")
    x, weights = meta(tokens, 8, dtype=HALF), meta(tokens, 6, dtype=HALF)
    per_expert = (6 * 8 + 8 * 3) * 2
    small = tokens * (8 * 2 + 6 * 8 + 6 * 2 + 8 * 2)
    expected = distinct_experts(256, 6, tokens) * per_expert + small
    assert moved(markers.moe, x, ids, weights, w13, w2) == pytest.approx(expected, abs=1)


def test_distinct_experts_of_uniform_routing():
    """One token chooses 6, many tokens all, sixteen what a simulation gives."""
    assert distinct_experts(256, 6, 1) == pytest.approx(6)
    assert distinct_experts(256, 6, 10_000) == pytest.approx(256)
    generator = torch.Generator().manual_seed(1)
    scores = torch.rand(2000, 16, 256, generator=generator)
    chosen = scores.topk(6, dim=-1).indices.flatten(1)
    simulated = sum(len(row.unique()) for row in chosen) / len(chosen)
    assert distinct_experts(256, 6, 16) == pytest.approx(simulated, rel=0.01)
