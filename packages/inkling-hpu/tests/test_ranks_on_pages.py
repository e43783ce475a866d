"""Sharded decoders on the HPU back end, a thread per rank, against the unsharded reference: heads
sharded and key/value heads replicated, experts reduced once or in two parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from paging_simulator import GaudiRunner

from inkling_core.checkpoint import load_decoder
from inkling_core.conv_state.conformance import Scheduled, TokenSequence
from inkling_core.generate import TokenGenerator
from inkling_core.parallel import TensorParallel
from inkling_core.parity.compare import assert_within
from inkling_core.parity.thread_ranks import ThreadRanks
from inkling_core.parity.tolerances import tolerance
from inkling_core.weights.tiny import make_tiny
from inkling_hpu.backend import backend
from inkling_hpu.switches import Switches

L = 8
TABLE = (5, 2, 4, 1)
CUTS = (13, 24, 25, 26)  # two chunks, then two decoded tokens, the first in mid-block


@pytest.mark.parametrize("single", [True, False], ids=["one-reduce", "two-reduces"])
@pytest.mark.parametrize("size", [2, 4])
def test_logits_equal_the_unsharded_model(tmp_path, size, single):
    changes = {"num_hidden_layers": 4, "local_layer_ids": (0, 1, 3), "mtp": None}
    config = make_tiny(tmp_path / "tiny", changes, seed=2)
    generator = torch.Generator().manual_seed(1)
    sequence = TokenSequence(torch.randint(0, 300, (CUTS[-1],), generator=generator).tolist())
    expected = TokenGenerator(load_decoder(tmp_path / "tiny"), CUTS[-1], L).feed(sequence.tokens)
    assert expected.std() > 0.5

    def work(tp: TensorParallel) -> torch.Tensor:
        apart = backend(Switches(shared_in_kernel=single))  # one kernel is one part to reduce
        decoder = load_decoder(tmp_path / "tiny", apart, replace(tp, single_reduce=single))
        runner = GaudiRunner(decoder, L, 10)
        logits = runner.prefill([Scheduled(sequence, 0, CUTS[0], TABLE)])
        logits += runner.prefill([Scheduled(sequence, CUTS[0], CUTS[1] - CUTS[0], TABLE)])
        for position in range(CUTS[1], CUTS[3]):
            logits += runner.decode([Scheduled(sequence, position, 1, TABLE)])
        return torch.cat(logits)

    ranks = ThreadRanks(size)
    for rank, logits in enumerate(ranks.run(work)):
        assert_within(logits, expected, tolerance("model", torch.float32), f"rank {rank} of {size}")
    sparse = config.num_hidden_layers - config.dense_layer_count
    per_step = 2 * config.num_hidden_layers + 1 + (0 if single else sparse)
    assert ranks.num_reduces == 4 * per_step
