"""Settings of `inkling plan`; the convention is that of `inkling_core.cli.settings`."""

from __future__ import annotations

from dataclasses import dataclass, fields

from inkling_core.cli.settings import check_at_least, check_choice

DEVICES = ("cpu", "gaudi")
ONLY = {  # settings that mean something on one device alone
    "kv_cache_mib": "cpu",
    "gpu_memory_utilization": "gaudi",
    "graph_reserved_mem": "gaudi",
    "num_gpu_blocks_override": "gaudi",
    "seconds_per_graph": "gaudi",
}


@dataclass(frozen=True)
class PlanSettings:
    """Settings of `inkling plan`. Names are those of `inkling serve`, or of vLLM's arguments.

    model: preset (inkling_small, inkling, nano), folder in the published format, or a config.json;
    no weights are read.
    device: cpu, or gaudi (needs inkling-hpu).
    cards: cards of the machine; on a CPU, processes that share its memory.
    tensor_parallel: cards that one server takes; null is as many of them as it can. The others take
    further servers.
    max_model_len: longest request in tokens, prompt and answer; null is the checkpoint's limit.
    max_num_seqs: requests that decode together.
    max_num_batched_tokens: new tokens of a step.
    block_size: tokens of a KV block.
    memory_gib: memory of a card, on a CPU of the machine; null is that of a Gaudi 2, or what is
    free here.
    kv_cache_mib: pool of each process on a CPU.
    gpu_memory_utilization: part of what weights leave on a card that vLLM may use, on a Gaudi.
    graph_reserved_mem: part of that for graphs (VLLM_GRAPH_RESERVED_MEM).
    num_gpu_blocks_override: blocks of the pool on a Gaudi; null is as many as fit.
    seconds_per_graph: warm-up time of one graph; the default is that of `inkling buckets`.
    format: table, plot, or json for one JSON object.
    """

    model: str = "nano"
    device: str = "cpu"
    cards: int = 1
    tensor_parallel: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 512
    block_size: int = 128
    memory_gib: float | None = None
    kv_cache_mib: int = 512
    gpu_memory_utilization: float = 0.92
    graph_reserved_mem: float = 0.1
    num_gpu_blocks_override: int | None = None
    seconds_per_graph: float = 13.8
    format: str = "table"

    def __post_init__(self) -> None:
        check_choice("device", self.device, DEVICES)
        check_choice("format", self.format, ("table", "plot", "json"))
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ONLY and value != field.default and self.device != ONLY[field.name]:
                raise ValueError(
                    f"{field.name}={value} means nothing on device={self.device}: leave it out, or "
                    f"say device={ONLY[field.name]}"
                )
            if field.type in ("int", "int | None") and value is not None:
                check_at_least(field.name, value, 2 if field.name in _MORE_THAN_ONE else 1)
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(
                f"gpu_memory_utilization={self.gpu_memory_utilization} must lie above 0 and not "
                "above 1"
            )
        if not 0 <= self.graph_reserved_mem < 1:
            raise ValueError(
                f"graph_reserved_mem={self.graph_reserved_mem} must lie in 0..1, below 1"
            )
        for name in ("memory_gib", "seconds_per_graph"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 2**20:  # written so that NaN fails too
                raise ValueError(f"{name}={value} must lie above 0 and below {2**20}")


_MORE_THAN_ONE = ("max_model_len", "max_num_batched_tokens")  # a step of one token is a decode
