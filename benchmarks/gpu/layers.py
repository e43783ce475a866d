"""One global decoder layer on a prompt: these kernels, the core's ops, transformers' own layer.

Same geometry and random weights of the same shapes, not the same numbers (parity with transformers
is `nox -s parity`); attention and experts are the rank's share, as everywhere in this folder.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gpu.shapes import Shapes
from inkling_core.backend import Backend
from inkling_core.config import InklingConfig
from inkling_core.conv_state import ConvLayout, TensorConvStore
from inkling_core.kv_cache import TensorKVCache
from inkling_core.layers.context import Caches, StepContext
from inkling_core.model import Decoder
from inkling_core.step import Step
from inkling_core.weights.tiny import TINY


def config_of(shapes: Shapes) -> InklingConfig:
    """A model of one global layer with experts, as wide as one rank's share."""
    return TINY.replace(
        hidden_size=shapes.hidden,
        num_hidden_layers=1,
        num_attention_heads=shapes.heads,
        num_key_value_heads=shapes.kv_heads,
        swa_num_key_value_heads=shapes.kv_heads,
        head_dim=shapes.head_dim,
        d_rel=16,
        rel_extent=shapes.extent,
        local_layer_ids=(),
        dense_layer_count=0,
        moe_intermediate_size=shapes.width,
        n_routed_experts=shapes.experts,
        num_experts_per_tok=shapes.chosen,
        log_scaling_n_floor=128_000,
        max_position_embeddings=1 << 20,
    )


def ours(backend: Backend, shapes: Shapes, tokens: int, device: torch.device) -> Callable:
    """`DecoderLayer` with a back end's ops over a prompt of `tokens` tokens, caches written."""
    config, dtype = config_of(shapes), torch.bfloat16
    decoder = Decoder(config, backend, dtype=dtype, device=device)
    generator = torch.Generator(device).manual_seed(0)
    for parameter_owner, name, parameter in _parameters(decoder.layers[0]):
        value = torch.randn(parameter.shape, generator=generator, device=device)
        value = value * parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 1 + 0.1 * value
        new = torch.nn.Parameter(value.to(parameter.dtype), requires_grad=False)
        setattr(parameter_owner, name, new)
    blocks = -(-tokens // shapes.block) + 1
    layout = ConvLayout.from_config(config)
    caches = Caches(
        TensorKVCache.allocate(config, blocks, shapes.block, dtype, device=device),
        TensorConvStore.allocate(layout, 1, blocks, dtype, device),
    )
    step = Step.single(tokens, 0, range(1, blocks), shapes.block, device=device)
    context = StepContext.of(config, step, caches)
    x_TD = torch.randn(tokens, shapes.hidden, generator=generator, device=device).to(dtype)
    block, norm_D = decoder.layers[0], torch.ones(shapes.hidden, dtype=dtype, device=device)
    normed_TD = decoder.ops.rms_norm(x_TD, block.attn_norm.weight, config.rms_norm_eps)

    @torch.inference_mode()
    def run() -> Tensor:
        return block(x_TD, normed_TD, norm_D, context)[0]

    return run


def _parameters(module: torch.nn.Module):
    for owner in module.modules():
        for name, parameter in list(owner.named_parameters(recurse=False)):
            yield owner, name, parameter


def transformers_layer(shapes: Shapes, tokens: int, device: torch.device) -> Callable:
    """transformers' `InklingDecoderLayer` on the same prompt. ImportError where there is none."""
    from transformers.models.inkling import configuration_inkling as configs
    from transformers.models.inkling.modeling_inkling import InklingDecoderLayer

    config = configs.InklingTextConfig(
        hidden_size=shapes.hidden,
        num_hidden_layers=1,
        num_attention_heads=shapes.heads,
        num_key_value_heads=shapes.kv_heads,
        head_dim=shapes.head_dim,
        d_rel=16,
        rel_extent=shapes.extent,
        local_layer_ids=[],
        dense_mlp_idx=0,
        moe_intermediate_size=shapes.width,
        n_routed_experts=shapes.experts,
        num_experts_per_tok=shapes.chosen,
        n_shared_experts=2,
        log_scaling_n_floor=128_000,
    )
    config._attn_implementation = "eager"  # the one whose bias needs no kernel of transformers' own
    with torch.device(device):
        layer = InklingDecoderLayer(config, 0).to(torch.bfloat16).eval()
    for name, parameter in layer.named_parameters():
        torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
        if "sconv" in name:
            parameter.data = parameter.data.float()
    x_BTD = torch.randn(1, tokens, shapes.hidden, dtype=torch.bfloat16, device=device)
    allowed = torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()
    mask = torch.zeros(tokens, tokens, dtype=torch.bfloat16, device=device)
    mask = mask.masked_fill(~allowed, float("-inf"))[None, None]

    @torch.inference_mode()
    def run() -> Tensor:
        out = layer(x_BTD, attention_mask=mask)
        return out[0] if isinstance(out, tuple) else out

    return run
