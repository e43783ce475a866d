"""A decode step inside vllm-gaudi's real runner, counted by the same rule as on the meta device.

The model is random and narrow, with the 42 layers, the heads per rank (4, and 1 for keys and
values) and the switches that Inkling-Small has at tensor parallel 8; widths do not enter a count.
What may differ is listed below, op by op; everything else has to be equal.
"""

from collections import Counter

import pytest
import torch
from prompts import random_ids
from runs import HERE, Run, launch

from inkling_core.config import PRESETS
from inkling_core.weights.tiny import make_tiny
from inkling_hpu.counter.decode_step import count_decode
from inkling_hpu.counter.layer_kinds import layers_by_kind
from inkling_hpu.switches import Switches

SMALL = PRESETS["inkling_small"]
TWO_RANKS = {
    "num_hidden_layers": SMALL.num_hidden_layers,
    "local_layer_ids": SMALL.local_layer_ids,
    "dense_layer_count": SMALL.dense_layer_count,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "swa_num_key_value_heads": 2,
    "n_routed_experts": 16,
    "num_experts_per_tok": SMALL.num_experts_per_tok,
    **dict.fromkeys(("mtp", "vision", "audio")),
}
OPS_LIMIT = 4200

# Decode attention is vllm-gaudi's own (`flat_pa` of its extension/ops.py, the branch for Gaudi 2),
# with a bias per block; on the meta device it is `inkling_hpu.decode.paged_attention`. Per layer:
ATTENTION = Counter(
    {
        **{"_to_copy": 2, "add": -2, "add_": 2, "addmm": -1, "amax": -1, "clone": 2, "exp": 1},
        **{"full": 1, "index_reduce_": 1, "index_select": -1, "inkling_hpu::mm_f32": -1},
        **{"maximum": 1, "mm": 4, "mul": 2, "sub": 1},
    }
)
STEP = {
    # vllm-gaudi's int32 positions become int64; for its attention, block mapping, bias and groups
    # of the two block lists are made once a step
    "index math": Counter({"_to_copy": 3, "lt": 2, "scalar_tensor": 2, "where": 2, "zeros": 2}),
    # the emulation looks at the ids before it lets them index
    "embedding": Counter({"min": 1, "_local_scalar_dense": 1}),
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Rows of the last decode step of both ranks, the emulation's index checks left out."""
    folder = tmp_path_factory.mktemp("count")
    make_tiny(folder / "model", TWO_RANKS, dtype=torch.bfloat16, tokenizer=True)
    run = Run(folder / "model", [], {"tensor_parallel_size": 2}, sources=HERE)
    prompts = [random_ids(length, 280, seed=length) for length in (3, 130, 257)]
    answer, _ = launch("count_ops.py", run, folder / "run", {"prompts": prompts})
    return [
        {
            (kind, part, op): Counter(ops=ops, all_reduces=reduces)
            for kind, part, op, ops, reduces in rank
            if part != "emulation"
        }
        for rank in answer["ranks"]
    ]


def test_ranks_run_the_same_ops(ranks):
    assert ranks[0] == ranks[1]


def test_the_real_runner_runs_what_the_meta_device_counts(ranks):
    meta = count_decode(SMALL, torch.bfloat16, 8, 3, 260, Switches()).tally
    expected = Counter({key: sums.ops + sums.all_reduces for key, sums in meta.rows.items()})
    for kind, layers in layers_by_kind(SMALL).items():
        for op, more in ATTENTION.items():
            expected[kind, "attention", op] += more * layers
    for part, changes in STEP.items():
        for op, more in changes.items():
            expected["step", part, op] += more
    real = Counter({key: counts.total() for key, counts in ranks[0].items()})
    assert +real == +expected


def test_ops_and_all_reduces_of_the_real_step(ranks):
    total = sum(ranks[0].values(), Counter())
    print(f"real runner: {total['ops']} ops, {total['all_reduces']} all-reduces")
    assert total["all_reduces"] == 84 + 1
    assert total["ops"] <= OPS_LIMIT
