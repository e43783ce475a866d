"""An HpuStep put into metadata and taken out again is the same step, in the fields that survive."""

from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch

from inkling_hpu import carriers
from inkling_hpu.builders import build_decode, build_prefill
from inkling_hpu.gaudi.names import _METADATA, CARRIERS
from inkling_hpu.switches import Switches

PAD = 40
SWITCHES = Switches()
TABLES = [[7, 3, 9, 12], [5, 3, 30, 2]]


def _prefill(contexts, num_context_blocks, num_rows=3, far=0):
    return build_prefill(
        [5, 1],
        contexts,
        TABLES,
        num_rows=num_rows,
        row_length=16,
        num_context_blocks=num_context_blocks,
        block_size=16,
        pad_block=PAD,
        num_far_blocks=far,
        reach=16,
        switches=SWITCHES,
    )


def _decode():
    return build_decode(
        [33, 1],
        TABLES,
        num_rows=4,
        num_blocks=8,
        window=17,
        block_size=16,
        pad_block=PAD,
        switches=SWITCHES,
    )


def _trimmed(step):
    """Metadata as the runner makes it and the model sees it: the surviving fields only."""
    metadata = SimpleNamespace(
        is_prompt=not step.is_decode,
        block_size=16,
        # what vllm-gaudi puts there itself: of the step's shapes, with its own padding of -1
        block_list=torch.full((step.num_rows * 3,), -1, dtype=torch.int32),
        block_groups=torch.full((8,), -1),
        slot_mapping=torch.full((step.num_rows, step.row_length), -1),
        attn_bias=None,
        **dict.fromkeys(CARRIERS),
    )
    no_mask = torch.zeros(1)
    carriers.put(metadata, step, no_mask)
    if metadata.is_prompt:
        assert metadata.attn_bias is no_mask
    kept = {name: getattr(metadata, name, None) for name in (*_METADATA, *CARRIERS)}
    assert set(vars(metadata)) <= set(kept), "a field that trimming drops"
    return SimpleNamespace(**kept)


def _same(a, b, path="step"):
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype == torch.int64, path
        assert a.shape == b.shape and torch.equal(a, b), path
    elif hasattr(a, "__dataclass_fields__") and not isinstance(a, Switches):
        assert type(a) is type(b), path
        for field in fields(a):
            if not field.name.startswith("_"):
                _same(getattr(a, field.name), getattr(b, field.name), f"{path}.{field.name}")
    else:
        assert a == b, path


@pytest.mark.parametrize(
    "step",
    [
        _prefill([0, 0], 0),
        _prefill([33, 0], 3),
        _prefill([0, 48], 4, 2),
        _prefill([33, 48], 4, 2, far=1),
        _decode(),
    ],
    ids=["P-Q3-M0", "P-Q3-M3", "P-Q2-M4", "P-Q2-F1-M3", "D-Q4"],
)
def test_there_and_back(step):
    positions_QS = step.positions_T.view(step.num_rows, -1).int()
    _same(step, carriers.take(_trimmed(step), positions_QS, SWITCHES))


def test_padding_of_the_decode_list_is_ours_where_vllm_gaudi_rewrites_its_own():
    metadata = _trimmed(_decode())
    metadata.block_groups[:] = 4  # as its fake device does with every -1, in place
    taken = carriers.take(metadata, torch.zeros(4, 1, dtype=torch.int32), SWITCHES)
    assert taken.keys.every.groups_P.tolist()[-4:] == [-1, -1, -1, -1]
