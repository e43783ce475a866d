"""A decode step inside vllm-gaudi's real runner, counted by the same rule as on the meta device.

The model is random and narrow: 12 layers in Inkling-Small's pattern on two ranks, each with the
heads of a rank of Inkling-Small at tensor parallel 8 (4, and 1 for keys and values); widths do not
enter a count. Layer by layer it has to agree with Inkling-Small itself. What may differ is listed
below, op by op.
"""

from collections import Counter

import pytest
import torch
from prompts import random_ids
from runs import HERE, Run, launch

from inkling_core.config import PRESETS
from inkling_core.weights.tiny import TINY, make_tiny
from inkling_hpu.counter.decode_step import count_decode
from inkling_hpu.counter.layer_kinds import STEP, layers_by_kind
from inkling_hpu.switches import Switches

SMALL = PRESETS["inkling_small"]
NARROW = {
    "num_hidden_layers": 12,
    "local_layer_ids": tuple(layer for layer in SMALL.local_layer_ids if layer < 12),
    "dense_layer_count": SMALL.dense_layer_count,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "swa_num_key_value_heads": 2,
    "n_routed_experts": 16,
    "num_experts_per_tok": SMALL.num_experts_per_tok,
    **dict.fromkeys(("mtp", "vision", "audio")),
}
LAYERS, SMALL_LAYERS = layers_by_kind(TINY.replace(**NARROW)), layers_by_kind(SMALL)
PATIENCE = {"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1100"}  # a busy machine counts slowly
OPS_LIMIT = 1841

# Decode attention of global layers is vllm-gaudi's own (`flat_pa` of its extension/ops.py, the
# branch for Gaudi 2), with a bias per block; on the meta device it is
# `inkling_hpu.decode.paged_attention`. Per global layer:
ATTENTION = Counter(
    {
        **{"_to_copy": 2, "add": -2, "add_": 2, "addmm": -1, "amax": -1, "clone": 2, "exp": 1},
        **{"full": 1, "index_reduce_": 1, "index_select": -1, "inkling_hpu::mm_f32": -1},
        **{"maximum": 1, "mm": 4, "mul": 2, "sub": 1},
    }
)
ONCE = {
    # vllm-gaudi's int32 positions become int64; for its attention, block mapping, bias and groups
    # of the block list are made once a step
    "index math": Counter({"_to_copy": 2, "lt": 1, "scalar_tensor": 1, "where": 1, "zeros": 1}),
    # the emulation looks at the ids before it lets them index
    "embedding": Counter({"min": 1, "_local_scalar_dense": 1}),
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Per rank, (layer kind, part, op) -> ops and all-reduces of the last decode step, the
    emulation's checks of indices left out."""
    folder = tmp_path_factory.mktemp("count")
    make_tiny(folder / "model", NARROW, dtype=torch.bfloat16, tokenizer=True)
    engine = {"tensor_parallel_size": 2}
    run = Run(folder / "model", [], engine, PATIENCE, sources=HERE)
    prompts = [random_ids(length, 280, seed=length) for length in (3, 130, 257)]
    answer, _ = launch("count_ops.py", run, folder / "run", {"prompts": prompts})
    return [
        {(kind, part, op): (ops, reduces) for kind, part, op, ops, reduces in rank}
        for rank in ([row for row in rows if row[1] != "emulation"] for rows in answer["ranks"])
    ]


def in_small(kind):
    """How often a layer of the narrow model stands for one of Inkling-Small."""
    return SMALL_LAYERS[kind] / LAYERS[kind] if kind != STEP else 1


def test_both_ranks_run_the_same_ops(ranks):
    assert ranks[0] == ranks[1]


def test_the_real_runner_runs_what_the_meta_device_counts(ranks):
    meta = count_decode(SMALL, torch.bfloat16, 8, 3, 260, Switches(), pool_blocks=96).tally
    expected = Counter({key: sums.ops + sums.all_reduces for key, sums in meta.rows.items()})
    for op, more in ATTENTION.items():
        kinds = {kind: n for kind, n in SMALL_LAYERS.items() if kind.startswith("global")}
        expected.update({(kind, "attention", op): more * n for kind, n in kinds.items()})
    for part, changes in ONCE.items():
        expected.update({(STEP, part, op): more for op, more in changes.items()})
    real = Counter({key: sum(counts) * in_small(key[0]) for key, counts in ranks[0].items()})
    assert +real == +expected


def test_ops_and_all_reduces_of_inkling_small(ranks):
    rows = ranks[0].items()
    ops, reduces = (sum(counts[i] * in_small(key[0]) for key, counts in rows) for i in (0, 1))
    print(f"Inkling-Small on the real runner: {ops:.0f} ops, {reduces:.0f} all-reduces")
    assert reduces == 84 + 1
    assert ops <= OPS_LIMIT
