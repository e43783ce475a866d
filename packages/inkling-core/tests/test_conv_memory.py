"""TensorConvStore: the conformance suite over own tensors and over views into engine-owned pages,
its cost in tensor calls, and its errors."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from inkling_core.conv_state import ConvLayout, ConvPlan, Stream, TensorConvStore
from inkling_core.conv_state.conformance import ConvStoreConformance
from inkling_core.step import Step

LAYOUT = ConvLayout(4, (2, 2, 3, 3))
KEYS_BEFORE_ROWS = 5  # elements of a page that belong to somebody else


class TestOwnTensors(ConvStoreConformance[TensorConvStore]):
    def make_store(self, layout, num_layers, num_blocks):
        return TensorConvStore.allocate(layout, num_layers, num_blocks)

    def rows(self, store, layer):
        return store.rows[layer]


class TestViewsIntoBf16Pages(ConvStoreConformance[TensorConvStore]):
    """Rows at an offset inside bf16 pages, fed with bf16 inputs."""

    x_dtype = torch.bfloat16
    fuzz_examples = 30

    def make_store(self, layout, num_layers, num_blocks):
        page = KEYS_BEFORE_ROWS + layout.history * layout.width + 2
        shape = (num_blocks, page)
        pages = [torch.full(shape, float("nan"), dtype=self.x_dtype) for _ in range(num_layers)]
        rows = [page_PE[:, KEYS_BEFORE_ROWS:-2].unflatten(1, layout.row_shape) for page_PE in pages]
        return TensorConvStore(rows, layout)

    def rows(self, store, layer):
        return store.rows[layer]


def test_writes_through_a_view_stay_inside_it():
    page_PE = torch.zeros(4, KEYS_BEFORE_ROWS + 30 + 2)
    store = TensorConvStore([page_PE[:, KEYS_BEFORE_ROWS:-2].unflatten(1, (3, 10))], LAYOUT)
    plan = ConvPlan.from_step(Step.single(9, 0, [3, 1, 2], 4), taps=4)
    for stream in Stream:
        store.exchange(0, stream, torch.ones(9, LAYOUT.widths[stream]), plan)
    assert page_PE[1:, KEYS_BEFORE_ROWS:-2].eq(1).all()
    assert page_PE.sum() == 3 * 30


class CountCalls(TorchDispatchMode):
    """Counts tensor operations that do work; views are free."""

    FREE = ("slice", "select", "view", "unsqueeze", "expand", "as_strided", "alias")

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += func.overloadpacket.__name__ not in self.FREE
        return func(*args, **(kwargs or {}))


def calls_of(lengths, contexts, block_size=128):
    """(calls to make the plan, calls of one exchange) for a step of such requests."""
    blocks = iter(range(1, 100_000))
    tables = [
        [next(blocks) for _ in range(-(-(length + context) // block_size))]
        for length, context in zip(lengths, contexts, strict=True)
    ]
    step = Step.build(lengths, contexts, tables, block_size)
    store = TensorConvStore.allocate(LAYOUT, 1, 1 + max(map(max, tables)))
    with CountCalls() as planning:
        plan = ConvPlan.from_step(step, taps=4)
    x_TC = torch.ones(sum(lengths), 2)
    with CountCalls() as exchanging:
        store.exchange(0, Stream.K, x_TC, plan)
    return planning.calls, exchanging.calls


def test_cost_in_calls_depends_on_neither_tokens_nor_requests():
    one = calls_of([1, 1], [5, 128])
    assert one == calls_of([1] * 32, [5, 128] * 16)
    assert one == calls_of([1, 2] * 16, [10_005, 9_984] * 16)
    assert calls_of([1000], [5]) == calls_of([1000, 129, 63] * 4, [5, 200, 77] * 4)
    assert one[0] <= 90
    assert one[1] <= 13


@pytest.mark.parametrize("Q", [1, 8])
def test_decode_costs_few_calls(Q):
    assert calls_of([1] * Q, [5] * Q)[1] <= 7


def test_refuses_rows_of_another_shape():
    with pytest.raises(ValueError, match=r"rows of layer 1 have shape \(5, 3, 9\), must be .*10"):
        TensorConvStore([torch.zeros(5, 3, 10), torch.zeros(5, 3, 9)], LAYOUT)


@pytest.mark.parametrize(
    "other", [torch.zeros(5, 3, 10).bfloat16(), torch.zeros(6, 3, 10)], ids=["dtype", "blocks"]
)
def test_refuses_layers_that_disagree(other):
    with pytest.raises(ValueError, match="layer 1 are"):
        TensorConvStore([torch.zeros(5, 3, 10), other], LAYOUT)


@pytest.mark.parametrize(
    ("stream", "shape", "message"),
    [
        (Stream.K, (4, 3), r"stream K has shape \(4, 3\), must be \[T, 2\]"),
        (Stream.MLP, (3, 3), "T >= 4"),
    ],
    ids=["width", "short"],
)
def test_refuses_inputs_of_another_shape(stream, shape, message):
    store = TensorConvStore.allocate(LAYOUT, 1, 5)
    plan = ConvPlan.from_step(Step.single(4, 0, [1], 4), taps=4)
    with pytest.raises(ValueError, match=message):
        store.exchange(0, stream, torch.zeros(shape), plan)


def test_refuses_a_plan_for_other_taps():
    store = TensorConvStore.allocate(LAYOUT, 1, 5)
    plan = ConvPlan.from_step(Step.single(4, 0, [1], 4), taps=3)
    with pytest.raises(ValueError, match="plan is for 3 taps, the store's rows for 4"):
        store.exchange(0, Stream.K, torch.zeros(4, 2), plan)
