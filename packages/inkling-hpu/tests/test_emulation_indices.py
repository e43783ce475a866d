"""-1 reaches the last row; any other bad index raises with op, index and size in the message."""

import pytest
import torch
import torch.nn.functional as F

from inkling_hpu.emulation.indices import BadIndex
from inkling_hpu.emulation.redirect import HpuToCpu

# torch says of index_reduce_ that it may change; vllm-gaudi's paged attention uses it.
pytestmark = pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
ROWS = 5


def table():
    return torch.arange(ROWS * 3, dtype=torch.float32).view(ROWS, 3)


def long(*values):
    return torch.tensor(values, dtype=torch.int64)


def copied(index, value=-7.0):
    return table().index_copy_(0, index, torch.full((len(index), 3), value))


READS = {
    "Tensor.index_select": lambda index: table().index_select(0, index),
    "torch.index_select": lambda index: torch.index_select(table(), 0, index),
    "keyword": lambda index: table().index_select(dim=0, index=index),
    "embedding": lambda index: F.embedding(index, table()),
    "torch.embedding": lambda index: torch.embedding(table(), index),
}
WRITES = {
    "index_copy_": lambda index: copied(index),
    "index_copy": lambda index: table().index_copy(0, index, torch.zeros(len(index), 3)),
    "index_add_": lambda index: table().index_add_(0, index, torch.ones(len(index), 3)),
    "index_fill_": lambda index: table().index_fill_(0, index, 9.0),
    "index_reduce_": lambda index: table().index_reduce_(
        0, index, torch.full((len(index), 3), 99.0), "amax"
    ),
}
ALL = {**READS, **WRITES}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
def test_minus_one_reads_the_last_row(read, dtype):
    with HpuToCpu():
        rows = read(long(0, -1, 2).to(dtype))
    assert torch.equal(rows, table()[torch.tensor([0, ROWS - 1, 2])])


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_minus_one_writes_the_last_row_only(write):
    with HpuToCpu():
        written = write(long(-1))
    assert torch.equal(written[:-1], table()[:-1])
    assert not torch.equal(written[-1], table()[-1])


@pytest.mark.parametrize("call", ALL.values(), ids=ALL)
@pytest.mark.parametrize("index", [-2, -100, ROWS, ROWS + 100])
def test_any_other_bad_index_raises(call, index):
    with HpuToCpu(), pytest.raises(BadIndex) as raised:
        call(long(0, index))
    for part in (f"index {index} ", "entry 1 of 2", f"0..{ROWS - 1}"):
        assert part in str(raised.value)


@pytest.mark.parametrize("name", ["index_select", "index_copy_", "index_reduce_", "embedding"])
def test_the_message_names_the_op(name):
    call = {"index_select": READS["keyword"], **ALL}[name]
    with HpuToCpu(), pytest.raises(BadIndex, match=name):
        call(long(ROWS))


def test_one_hot_of_padding_is_a_row_of_zeros():
    with HpuToCpu():
        hot = F.one_hot(torch.tensor([1, -1, 0], dtype=torch.int32), num_classes=2)
    assert hot.tolist() == [[0, 1], [0, 0], [1, 0]]


@pytest.mark.parametrize("index", [-2, 2, 3])
def test_one_hot_of_another_bad_class_raises(index):
    with HpuToCpu(), pytest.raises(BadIndex, match="one_hot"):
        F.one_hot(long(0, index), num_classes=2)


def test_subscripts_refuse_what_is_below_minus_one():
    with HpuToCpu():
        assert torch.equal(table()[long(-1)], table()[ROWS - 1 :])
        with pytest.raises(BadIndex, match="-2"):
            table()[long(0, -2)]
        with pytest.raises(BadIndex, match="-3"):
            table()[long(-3), 1] = 0.0
        with pytest.raises(IndexError):
            table()[long(ROWS)]


def test_gather_refuses_padding_too():
    with HpuToCpu(), pytest.raises((IndexError, RuntimeError)):
        table().gather(0, long(-1, -1, -1)[None])


def test_no_index_at_all_is_fine():
    with HpuToCpu():
        assert table().index_select(0, long()).shape == (0, 3)
