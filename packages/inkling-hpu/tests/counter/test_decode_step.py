"""decode_step.py and parts.py: the served decoder, counted on the meta device."""

import functools
import importlib.util
import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inkling_core.config import PRESETS
from inkling_hpu.counter import decode_step, parts
from inkling_hpu.counter.command import ADDED
from inkling_hpu.counter.decode_step import count_decode, count_step, decode_inputs
from inkling_hpu.counter.layer_kinds import STEP
from inkling_hpu.counter.rule import op_name
from inkling_hpu.serving_model import InklingForGaudi, build_decoder
from inkling_hpu.switches import Switches

SMALL = PRESETS["inkling_small"]
ON, OFF = Switches(), replace(Switches(), **dict.fromkeys(ADDED.values(), False))
TWO_REDUCES = Switches(single_reduce=False, shared_in_kernel=False)
OPS_LIMIT = 1761  # of a decode step with all switches on


@functools.cache
def counted(switches=ON, streams=1, context=8192, tp=8):
    return count_decode(SMALL, torch.bfloat16, tp, streams, context, switches)


def test_a_step_with_the_hoist_stays_below_the_limit():
    assert counted().tally.total().ops <= OPS_LIMIT


def test_all_reduces_of_a_step():
    """One after each attention and each feed-forward, and one of the sharded embedding; without
    the single reduce one more in each of 40 layers with experts."""
    assert counted().tally.total().all_reduces == 84 + 1
    assert counted(TWO_REDUCES).tally.total().all_reduces == 124 + 1


def test_the_logits_are_gathered_once():
    gathers = {
        key: sums.ops for key, sums in counted().tally.rows.items() if key.op.endswith("all_gather")
    }
    assert gathers == {(STEP, "head", "inkling_hpu::all_gather"): 1}


def test_one_rank_has_no_collectives():
    one = counted(tp=1).tally
    assert one.total().all_reduces == 0
    assert not [key for key in one.rows if key.op.endswith("all_gather")]


@pytest.mark.parametrize(
    ("switches", "streams", "context"),
    [
        pytest.param(ON, 16, 262_144, id="on-B16-262144"),
        pytest.param(ON, 3, 1, id="on-B3-1"),
        pytest.param(ON, 5, 129, id="on-B5-129"),
        pytest.param(OFF, 16, 262_144, id="off-B16-262144"),
    ],
)
def test_ops_depend_on_neither_streams_nor_context(switches, streams, context):
    """By place and op name, so that no two differences can cancel."""
    one, other = counted(switches).tally, counted(switches, streams, context).tally
    assert {key: (s.ops, s.all_reduces) for key, s in one.rows.items()} == {
        key: (s.ops, s.all_reduces) for key, s in other.rows.items()
    }


def test_bytes_grow_with_streams_and_context():
    short, long = counted(), counted(context=262_144)
    assert counted(streams=16).tally.total().bytes > 4 * short.tally.total().bytes
    # Global layers read keys and values of one head in bfloat16, gathered: read, written, read.
    keys = 7 * 2 * (262_144 - 8192) * 128 * 2
    assert long.tally.total().bytes - short.tally.total().bytes > 3 * keys


def test_expert_weights_are_most_of_a_short_step():
    """1.25 GB of distinct routed experts a token and two shared ones: 40 layers x 8 x
    (3 x 4096 x 256) x 2 bytes."""
    moe = [s.bytes for key, s in counted().tally.rows.items() if key.op == "inkling_hpu::moe"]
    assert sum(moe) == pytest.approx(40 * 8 * 3 * 4096 * 256 * 2, rel=0.01)


@pytest.mark.parametrize("switches", [ON, OFF], ids=["on", "off"])
def test_every_op_has_a_part(switches):
    assert (parts.OTHER,) not in counted(switches).tally.by("part")


@pytest.mark.parametrize("switches", [ON, OFF], ids=["on", "off"])
def test_layers_of_one_kind_are_alike(switches):
    """Nothing of the step hides in the first layer that asks for it."""
    found = counted(switches)
    for kind, layers in found.layers.items():
        for group, sums in found.tally.by("kind", "part", "op").items():
            if group[0] == kind:
                assert sums.ops % layers == 0, group


def test_the_hoist_takes_index_math_out_of_the_layers():
    def index_math(switches, at_step):
        chosen = counted(switches).tally.total(
            lambda key: key.part == "index math" and (key.kind == STEP) == at_step
        )
        return chosen.ops

    assert index_math(ON, at_step=False) == 0 < index_math(ON, at_step=True)
    assert index_math(OFF, at_step=True) == 0
    assert index_math(OFF, at_step=False) > 10 * index_math(ON, at_step=True)


# ---- the table of parts --------------------------------------------------------------------------


def source_of(module):
    """Read, not imported: one of them needs vllm_gaudi."""
    return Path(importlib.util.find_spec(module).origin).read_text()


@pytest.mark.parametrize("module", parts.PARTS)
def test_the_table_of_parts_names_code_that_is_there(module):
    source, entry = source_of(module), parts.PARTS[module]
    for function in entry if isinstance(entry, dict) else ():
        assert f"def {function}(" in source, f"{module}.{function} is gone"


@pytest.mark.parametrize("place", parts.ONCE, ids=[function for _, function in parts.ONCE])
def test_what_runs_once_a_step_is_where_the_table_says(place):
    module, function = place
    assert f"def {function}(" in source_of(module)


# ---- the counted object --------------------------------------------------------------------------


def test_the_counted_decoder_is_the_one_that_the_plugin_serves():
    """One constructor, and the serving class uses no other."""
    assert decode_step.build_decoder is build_decoder
    serving = inspect.getsource(InklingForGaudi)
    assert serving.count("build_decoder(") == 1
    assert not re.search(r"(?<!build_)[dD]ecoder\(", serving.replace("self.decoder(", ""))
    decoder = build_decoder(SMALL, torch.bfloat16, 0, 8, ON)
    assert {parameter.device.type for parameter in decoder.parameters()} == {"meta"}


def test_an_op_added_to_the_served_decoder_is_counted():
    """The count is of this object and no copy or list of what it should do."""
    decoder = build_decoder(SMALL, torch.bfloat16, 0, 8, ON)
    decoder.load_weights(list(decoder.named_parameters()))
    decoder.layers[3].register_forward_hook(lambda module, given, out: (out[0] * 1.0, out[1]))
    more = count_step(decoder, decode_inputs(decoder, 1, 8192, ON))
    assert more.tally.total().ops == counted().tally.total().ops + 1


def test_unpacked_experts_would_be_packed_at_every_step():
    """Why the counted decoder goes through load_weights: two more copies in 40 layers."""
    decoder = build_decoder(SMALL, torch.bfloat16, 0, 8, ON)
    raw = count_step(decoder, decode_inputs(decoder, 1, 8192, ON))
    assert raw.tally.total().ops == counted().tally.total().ops + 2 * 40


def test_a_size_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="not divide"):
        counted(tp=3)


def test_op_names_are_short():
    assert op_name(torch.ops.aten.add.Tensor) == "add"
    assert op_name(torch.ops.inkling_hpu.moe.default) == "inkling_hpu::moe"
