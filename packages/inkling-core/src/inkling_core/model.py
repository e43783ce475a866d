"""The whole first-generation decoder, text only, in one scroll.

    embedding + norm -> blocks (attention, experts, four short convolutions each) -> norm -> head

Not a sampler and not a scheduler. One call processes one `Step`: packed new tokens of any number
of requests, whose past lives in `Caches`. Full forward, chunked prefill and decode are the same
call with different steps. Parameters carry the published names without the `model.llm.` prefix.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from inkling_core.backend import REFERENCE, Backend, OpContext
from inkling_core.config import InklingConfig
from inkling_core.layers.context import Caches, StepContext
from inkling_core.layers.decoder_layer import DecoderLayer
from inkling_core.layers.linear import Weight, put
from inkling_core.layers.moe import MoE
from inkling_core.packed_experts import PackedExperts
from inkling_core.parallel import SINGLE, TensorParallel
from inkling_core.step import PackedStep


class Decoder(nn.Module):
    """Inkling and Inkling-Small.

    Args:
        config: validated geometry.
        backend: who computes the ops; the reference by default.
        tp: this rank and its collectives; one rank by default.
        dtype: of activations and large weights. Conv taps, selection bias and the experts'
            global scale are float32 whatever it is.
        device: where the ops run, the cpu by default; caches are allocated there and verifiers
            look at it. The weights are moved there by whoever loads them.
    """

    def __init__(
        self,
        config: InklingConfig,
        backend: Backend = REFERENCE,
        tp: TensorParallel = SINGLE,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.config, self.tp, self.dtype = config, tp, dtype
        self.device = device or torch.device("cpu")
        context = OpContext(config, dtype, self.device, tp.size)
        self.ops = backend.bind(context)
        rows = tp.shard(config.vocab_size, "vocab_size")
        self.embed = Weight(rows, config.hidden_size, dtype=dtype)
        self.embed_norm = Weight(config.hidden_size, dtype=dtype)
        layers = [
            DecoderLayer(config, layer, self.ops, tp, dtype)
            for layer in range(config.num_hidden_layers)
        ]
        # A ModuleList is a sequence of what it was given, but is not typed as one.
        self.layers: Sequence[DecoderLayer] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.norm = Weight(config.hidden_size, dtype=dtype)
        self.unembed = Weight(rows, config.hidden_size, dtype=dtype)

    def load_weights(self, weights: Iterable[tuple[str, Tensor | PackedExperts]]) -> "Decoder":
        """Puts this rank's tensors in place, one at a time, without copying.

        Experts may come packed: their layers decode them one by one and run the reference op.

        Raises:
            ValueError: an unknown name, a shape that is not this rank's, or a name left without
                a tensor; every problem is listed.
        """
        expected = dict(self.named_parameters())
        problems: list[str] = []
        for name, tensor in weights:
            parameter = expected.pop(name, None)
            if parameter is None:
                problems.append(f"{name}: unknown or given twice")
            elif parameter.shape != tensor.shape:
                problems.append(
                    f"{name}: shape {list(tensor.shape)}, needs {list(parameter.shape)}"
                )
            else:
                owner, _, leaf = name.rpartition(".")
                put(self.get_submodule(owner), leaf, tensor.to(parameter.dtype))
        problems += [f"{name}: missing" for name in expected]
        if problems:
            raise ValueError("weights do not fit the decoder:\n  " + "\n  ".join(problems))
        self.pack_weights()
        return self

    def pack_weights(self) -> None:
        """Puts the experts into the back end's layout, once; `load_weights` has done so. Works on
        the meta device too, where nothing is ever loaded."""
        for module in self.modules():
            if isinstance(module, MoE):
                module.pack_weights()

    def embed_tokens(self, ids_T: Tensor) -> Tensor:
        """`[T]` ids -> `[T, D]` normed embeddings; each rank owns a range of rows."""
        local_T = ids_T - self.tp.rank * self.embed.weight.shape[0]
        owned_T = (local_T >= 0) & (local_T < self.embed.weight.shape[0])
        rows_TD = self.embed.weight[local_T * owned_T] * owned_T[:, None]
        rows_TD = self.tp.all_reduce(rows_TD)
        return self.ops.rms_norm(rows_TD, self.embed_norm.weight, self.config.rms_norm_eps)

    @torch.inference_mode()
    def forward(self, ids_T: Tensor, step: PackedStep, caches: Caches) -> Tensor:
        """Processes one step.

        Args:
            ids_T: token ids of the packed tokens, padding rows included (any valid id).
            step: where each token stands: a `Step`, or what the back end and caches make of one.
            caches: written in place.

        Returns:
            `[T, D]` final-normed hidden states, ready for `logits`.
        """
        context = StepContext.of(self.config, step, caches)
        x_TD = self.embed_tokens(ids_T)
        # each block ends with the norm that the next one reads, the last with the final norm
        first, *following = [*(block.attn_norm.weight for block in self.layers), self.norm.weight]
        normed_TD = self.ops.rms_norm(x_TD, first, self.config.rms_norm_eps)
        for block, norm_D in zip(self.layers, following, strict=True):
            x_TD, normed_TD = block(x_TD, normed_TD, norm_D, context)
        return normed_TD

    @torch.inference_mode()
    def logits(self, x_TD: Tensor) -> Tensor:
        """`[T, D]` hidden states -> `[T, unpadded_vocab_size]`; padded rows are cut."""
        multiplier = self.config.logits_mup_width_multiplier
        shard_TV = self.ops.logits(x_TD, self.unembed.weight, multiplier)
        return self.tp.all_gather(shard_TV)[:, : self.config.unpadded_vocab_size]
