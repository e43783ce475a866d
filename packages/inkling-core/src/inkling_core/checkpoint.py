"""From a checkpoint folder to a decoder that can run: configuration, weights, this rank's shard.

Not the reading itself: `config` validates the geometry, `weights` the tensors; each lists every
problem of the folder at once, before anything is computed.
"""

from pathlib import Path

import torch

from inkling_core.backend import REFERENCE, Backend
from inkling_core.config import InklingConfig
from inkling_core.model import Decoder
from inkling_core.parallel import SINGLE, TensorParallel
from inkling_core.weights.loader import load


def load_decoder(
    directory: Path | str,
    backend: Backend = REFERENCE,
    tp: TensorParallel = SINGLE,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    pack_experts: bool = False,
) -> Decoder:
    """The decoder of a folder in the published format.

    Args:
        directory: holds `config.json` and the safetensors files.
        backend: who computes the ops.
        tp: this rank and its collectives.
        dtype: of activations and large weights.
        device: where weights and caches live and the ops run; the cpu by default.
        pack_experts: keep experts that are stored in MXFP8 or NVFP4 as stored and decode them one
            by one when used: less memory, more work per step, the same values.

    Raises:
        ConfigError, CheckpointError: everything that is wrong with the folder.
    """
    config = InklingConfig.from_checkpoint(directory)
    weights = load(
        directory, config, dtype=dtype, tp_rank=tp.rank, tp_size=tp.size, pack_experts=pack_experts
    )
    decoder = Decoder(config, backend, tp, dtype, device)
    return decoder.load_weights((name, w.to(decoder.device)) for name, w in weights.items())


def dtype_of(name: str, config: InklingConfig) -> torch.dtype:
    """The dtype called `name`; `auto` is the one that the configuration gives the weights."""
    return getattr(torch, config.dtype if name == "auto" else name)
