"""Every tensor of a first-generation checkpoint, from its configuration alone. No torch.

One table row a tensor: published name, shape in symbols, stored dtype, tensor-parallel rule, part
of the model. It opens no file (`audit` compares it with one) and computes nothing.

Symbols: V vocabulary, D hidden, Q query heads x head dim, G KV heads x head dim, H head dim,
P width of the relative query, QP query heads x P, R relative extent of the layer, W conv taps,
F dense width, E routed experts, S shared experts, I expert width; "2F", "E+S" as they read.

w13 tensors are interleaved: row 2i is gate row i, row 2i+1 is up row i. Published files store
everything in bf16 but the selection bias and the router's scale (float32); loaders accept either
dtype for each. `held_float32` marks the tensors that every implementation keeps in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from inkling_core.weights.rules import KvSplit, Replicate, Rule, Split
from inkling_core.weights.towers import hmlp_widths

if TYPE_CHECKING:
    from inkling_core.config import InklingConfig

TEXT_PREFIX = "model.llm."
SKIPPED_PREFIXES = {
    "mtp": "model.mtp.",
    "vision": "model.visual.",
    "audio": "model.audio.",
}
"""Parts of the release that text serving leaves on disk."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor as the published files hold it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """Stored dtype, as safetensors spells it: `BF16` or `F32`."""
    rule: Rule
    part: str
    held_float32: bool = False

    @property
    def key(self) -> str:
        """The name that modules look it up by: without `model.llm.`."""
        return self.name.removeprefix(TEXT_PREFIX)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True)
class _Row:
    suffix: str
    shape: str
    part: str
    split: str = ""
    """"dim unit" in symbols, e.g. "0 H"; empty for replicated, "kv" for KV heads."""
    stored_float32: bool = False
    held_float32: bool = False


_ENDS = (
    _Row("embed.weight", "V D", "embedding", split="0 1"),
    _Row("embed_norm.weight", "D", "norms"),
    _Row("norm.weight", "D", "norms"),
    _Row("unembed.weight", "V D", "unembedding", split="0 1"),
)

_ATTENTION = (
    _Row("attn.wq_du.weight", "Q D", "attention", split="0 H"),
    _Row("attn.wk_dv.weight", "G D", "attention", split="kv"),
    _Row("attn.wv_dv.weight", "G D", "attention", split="kv"),
    _Row("attn.wr_du.weight", "QP D", "attention", split="0 P"),
    _Row("attn.wo_ud.weight", "D Q", "attention", split="1 H"),
    _Row("attn.q_norm.weight", "H", "norms"),
    _Row("attn.k_norm.weight", "H", "norms"),
    _Row("attn.k_sconv.weight", "G 1 W", "convs", split="kv", held_float32=True),
    _Row("attn.v_sconv.weight", "G 1 W", "convs", split="kv", held_float32=True),
    _Row("attn.rel_logits_proj.proj", "P R", "attention"),
    _Row("attn_norm.weight", "D", "norms"),
    _Row("mlp_norm.weight", "D", "norms"),
    _Row("attn_sconv.weight", "D 1 W", "convs", held_float32=True),
    _Row("mlp_sconv.weight", "D 1 W", "convs", held_float32=True),
)

_DENSE = (
    _Row("mlp.w13_dn.weight", "2F D", "dense_mlp", split="0 2"),
    _Row("mlp.w2_md.weight", "D F", "dense_mlp", split="1 1"),
    _Row("mlp.global_scale", "1", "dense_mlp"),
)

_SPARSE = (
    _Row("mlp.gate.weight", "E+S D", "router"),
    _Row("mlp.gate.bias", "E", "router", stored_float32=True, held_float32=True),
    _Row("mlp.gate.global_scale", "1", "router", stored_float32=True, held_float32=True),
    _Row("mlp.experts.w13_weight", "E 2I D", "routed_experts", split="1 2"),
    _Row("mlp.experts.w2_weight", "E D I", "routed_experts", split="2 1"),
    _Row("mlp.shared_experts.shared_w13_weight", "S 2I D", "shared_experts", split="1 2"),
    _Row("mlp.shared_experts.shared_w2_weight", "S D I", "shared_experts", split="2 1"),
)

_MTP_ENDS = (
    _Row("hidden_norm.weight", "D", "mtp"),
    _Row("embed_norm.weight", "D", "mtp"),
    _Row("input_proj.weight", "D 2D", "mtp"),
)


def text_tensors(config: InklingConfig) -> Iterator[TensorSpec]:
    """The language model: embedding, every layer, head. In the order of the computation's table."""
    yield from _expand(_ENDS, TEXT_PREFIX, config, _symbols(config, local=False))
    for layer in range(config.num_hidden_layers):
        mlp = _DENSE if config.is_dense(layer) else _SPARSE
        symbols = _symbols(config, local=config.is_local(layer))
        yield from _expand((*_ATTENTION, *mlp), f"{TEXT_PREFIX}layers.{layer}.", config, symbols)


def mtp_tensors(config: InklingConfig) -> Iterator[TensorSpec]:
    """The multi-token-prediction chain: dense blocks, local or global by depth."""
    if config.mtp is None:
        return
    root = SKIPPED_PREFIXES["mtp"]
    for depth in range(config.mtp.num_layers):
        symbols = _symbols(config, local=config.mtp.is_local(depth))
        prefix = f"{root}layers.{depth}."
        yield from _expand(_MTP_ENDS, prefix, config, symbols)
        block = (*_ATTENTION, *_DENSE)
        yield from _expand(block, f"{prefix}transformer_block.", config, symbols, part="mtp")
    if config.mtp.chain_hidden_post_norm:
        norm = (_Row("chain_norm.weight", "D", "mtp"),)
        yield from _expand(norm, root, config, _symbols(config, local=False))


def tower_tensors(config: InklingConfig) -> Iterator[TensorSpec]:
    """The image and audio towers."""
    stored = _stored(config, stored_float32=False)
    if config.vision is not None:
        root = SKIPPED_PREFIXES["vision"]
        shapes = hmlp_widths(config.vision, config.hidden_size)
        for index, (width_in, width_out) in enumerate(shapes):
            name = f"{root}layers.linear_{index}.weight"
            yield TensorSpec(name, (width_out, width_in), stored, Replicate(), "vision")
            if index < len(shapes) - 1:
                name = f"{root}layers.norm_{index}.weight"
                yield TensorSpec(name, (width_out,), stored, Replicate(), "vision")
        name = f"{root}final_norm.weight"
        yield TensorSpec(name, (config.hidden_size,), stored, Replicate(), "vision")
    if config.audio is not None:
        root = SKIPPED_PREFIXES["audio"]
        rows = config.audio.n_mel_bins * config.audio.mel_vocab_size
        shape = (rows, config.hidden_size)
        yield TensorSpec(f"{root}encoder.weight", shape, stored, Replicate(), "audio")
        yield TensorSpec(f"{root}final_norm.weight", shape[1:], stored, Replicate(), "audio")


def all_tensors(config: InklingConfig) -> Iterator[TensorSpec]:
    """Everything a release holds: text, MTP, towers."""
    yield from text_tensors(config)
    yield from mtp_tensors(config)
    yield from tower_tensors(config)


def _symbols(config: InklingConfig, *, local: bool) -> dict[str, int]:
    heads, head_dim = config.num_attention_heads, config.head_dim
    return {
        "1": 1,
        "2": 2,
        "V": config.vocab_size,
        "D": config.hidden_size,
        "2D": 2 * config.hidden_size,
        "H": head_dim,
        "Q": heads * head_dim,
        "G": config.kv_heads_of(local) * head_dim,
        "P": config.d_rel,
        "QP": heads * config.d_rel,
        "R": config.sliding_window if local else config.rel_extent,
        "W": config.conv_kernel_size,
        "F": config.intermediate_size,
        "2F": 2 * config.intermediate_size,
        "E": config.n_routed_experts,
        "S": config.n_shared_experts,
        "E+S": config.n_routed_experts + config.n_shared_experts,
        "I": config.moe_intermediate_size,
        "2I": 2 * config.moe_intermediate_size,
    }


def _expand(
    rows: tuple[_Row, ...],
    prefix: str,
    config: InklingConfig,
    symbols: dict[str, int],
    part: str | None = None,
) -> Iterator[TensorSpec]:
    for row in rows:
        yield TensorSpec(
            name=prefix + row.suffix,
            shape=tuple(symbols[symbol] for symbol in row.shape.split()),
            dtype=_stored(config, row.stored_float32),
            rule=_rule(row.split, symbols),
            part=part or row.part,
            held_float32=row.held_float32,
        )


def _rule(split: str, symbols: dict[str, int]) -> Rule:
    if not split:
        return Replicate()
    if split == "kv":
        return KvSplit(0, symbols["H"])
    dim, unit = split.split()
    return Split(int(dim), symbols[unit])


def _stored(config: InklingConfig, stored_float32: bool) -> str:
    return "F32" if stored_float32 or config.dtype == "float32" else "BF16"
