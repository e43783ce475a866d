"""How vllm-gaudi shares a card's memory, as a sum of parts.

    left    = memory - weights
    usable  = left * utilization                     --gpu-memory-utilization, of what is left
    blocks  = usable * (1 - graphs) // block - 1     one block is kept for padding
    spare   = memory - every part                    activations; less than 0 is a plan that fails

(v0.26.0's `determine_available_memory`; prefill masks and activations are not in its formula and
have to fit in what it leaves.) With `--num-gpu-blocks-override` the pool is what was asked for, and
the graphs' part is kept as if it had not been.

What it is not: a measurement, or the bytes of a block (`kv_cache.page_bytes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from inkling_core.plan.record import Part
from inkling_hpu.kv_cache import PageBytes

UTILIZATION = 0.92  # vLLM's default of --gpu-memory-utilization, 0.26 to 0.32
GRAPH_SHARE = 0.1  # vllm-gaudi's default of VLLM_GRAPH_RESERVED_MEM


@dataclass(frozen=True)
class CardMemory:
    """One card of a deployment. Sizes are bytes.

    total: memory of the card. weights: this rank's. page: keys and values, and conv row, of one
    block in one layer. mask: largest prefill mask with its index. override: blocks that were asked
    for, or None.
    """

    total: int
    weights: int
    page: PageBytes
    layers: int
    mask: int
    utilization: float = UTILIZATION
    graph_share: float = GRAPH_SHARE
    override: int | None = None

    @property
    def left(self) -> int:
        """Beside the weights; below 0 where they do not fit."""
        return self.total - self.weights

    @property
    def block(self) -> int:
        """One block of all layers."""
        return sum(self.page) * self.layers

    @cached_property
    def blocks(self) -> int:
        """Of the pool, the null block included."""
        if self.override is not None:
            return self.override
        return max(0, int(self.left * self.utilization * (1 - self.graph_share)) // self.block - 1)

    @property
    def padding(self) -> int:
        """The pad block, and the conv row of zeros behind it."""
        return self.block + self.page.rows * self.layers

    @property
    def graphs(self) -> int:
        """What vllm-gaudi keeps for graphs."""
        return max(0, int(self.left * self.utilization * self.graph_share))

    @property
    def spare(self) -> int:
        """For activations; below 0 where the parts are more than the card."""
        pool = self.blocks * self.block
        return self.left - pool - self.padding - self.graphs - self.mask

    def parts(self) -> tuple[Part, ...]:
        """Everything, in the order of a table; adds up to `total`."""
        return (
            Part("weights", self.weights),
            Part("keys and values", self.blocks * self.page.kv * self.layers),
            Part("conv rows", self.blocks * self.page.rows * self.layers),
            Part("pad block, zero row", self.padding),
            Part("graphs", self.graphs),
            Part("prefill mask, at most", self.mask),
            Part("left for activations", self.spare),
        )
