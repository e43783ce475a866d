"""layer_kinds.py: which layer an op belongs to, told by hooks, on the reference decoder."""

import pytest

from inkling_core.config import PRESETS, InklingConfig
from inkling_core.embedded import EMBEDDED
from inkling_core.generate import TokenGenerator
from inkling_core.model import Decoder
from inkling_core.weights import stream
from inkling_hpu.counter.layer_kinds import STEP, LayerKinds, kind_of, layers_by_kind
from inkling_hpu.counter.mode import OpCounter

SMALL = PRESETS["inkling_small"]


def test_the_kinds_of_the_published_model():
    assert layers_by_kind(SMALL) == {"local-dense": 2, "local-MoE": 33, "global-MoE": 7}
    assert kind_of(SMALL, 5) == "global-MoE"


@pytest.fixture(scope="module")
def counted():
    """Kinds seen while the embedded model decodes one token after three, and the hooks after."""
    config = InklingConfig.from_checkpoint(EMBEDDED)
    decoder = Decoder(config).load_weights(stream(EMBEDDED, config))
    generator = TokenGenerator(decoder, 8)
    generator.feed([1, 2, 3])
    with LayerKinds(decoder) as kinds, OpCounter(lambda: (kinds.current, "all")) as counter:
        generator.feed([4])
    return decoder, kinds, counter.tally


def test_every_kind_and_the_step_have_ops(counted):
    decoder, _, tally = counted
    expected = {STEP, *layers_by_kind(decoder.config)}
    assert {kind for (kind,) in tally.by("kind")} == expected
    assert all(sums.ops for sums in tally.by("kind").values())


def test_kinds_add_up_to_the_step(counted):
    _, _, tally = counted
    assert sum(sums.ops for sums in tally.by("kind").values()) == tally.total().ops


def test_hooks_are_taken_off_again(counted):
    decoder, kinds, _ = counted
    assert kinds.current == STEP
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in decoder.layers)
