"""Graph signatures: tensors count by shape and dtype, everything else by value."""

import json
from collections import namedtuple

import pytest
import torch

from inkling_hpu.emulation import graphs


class Doubles(torch.nn.Module):
    def forward(self, x, **metadata):
        return 2 * x


@pytest.fixture
def wrapped(monkeypatch):
    monkeypatch.setattr(graphs, "_seen", type(graphs._seen)())
    return graphs.wrap_in_hpu_graph(Doubles(), disable_tensor_cache=True)


def test_the_answer_is_the_module_s_own(wrapped):
    assert wrapped(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_values_of_tensors_make_no_new_graph(wrapped):
    for step in range(5):
        wrapped(torch.full((2, 3), step), seq_lens=torch.tensor([step]))
    assert list(graphs.captured().values()) == [5]


@pytest.mark.parametrize(
    "calls",
    [
        [torch.ones(2), torch.ones(3)],
        [torch.ones(2), torch.ones(2, 1)],
        [torch.ones(2), torch.ones(2, dtype=torch.bfloat16)],
    ],
    ids=["size", "rank", "dtype"],
)
def test_shape_and_dtype_of_tensors_do(wrapped, calls):
    for x in calls:
        wrapped(x)
    assert len(graphs.captured()) == 2


@pytest.mark.parametrize("values", [(1, 2), (1.0, 1.5), (True, False), ("a", "b"), (None, 0)])
def test_python_values_in_the_metadata_do(wrapped, values):
    for value in values:
        wrapped(torch.ones(1), metadata={"block_size": value})
    assert len(graphs.captured()) == 2


def test_a_namedtuple_is_known_by_its_fields(wrapped):
    # vllm-gaudi builds its metadata from a set of names: the order differs between processes.
    one, other = namedtuple("Trimmed", "a b"), namedtuple("Trimmed", "b a")
    wrapped(torch.ones(1), metadata=one(a=torch.ones(2), b=7))
    wrapped(torch.ones(1), metadata=other(a=torch.ones(2), b=7))
    assert len(graphs.captured()) == 1


def test_bypassed_calls_are_not_captured(wrapped):
    assert wrapped(torch.ones(1), bypass_hpu_graphs=True).tolist() == [2.0]
    assert not graphs.captured()


def test_the_log_gets_each_new_signature_once(wrapped, monkeypatch, tmp_path):
    log = tmp_path / "graphs.jsonl"
    monkeypatch.setenv("INKLING_EMULATED_GRAPH_LOG", str(log))
    for size in (1, 2, 1, 2):
        wrapped(torch.ones(size))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [("float32[1]" in line["signature"]) for line in lines] == [True, False]
    assert len({line["digest"] for line in lines}) == 2
