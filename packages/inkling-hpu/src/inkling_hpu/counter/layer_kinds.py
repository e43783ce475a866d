"""Which kind of layer is running: local or global attention, dense or expert feed-forward.

Not a part of a layer (`parts.py`). Forward hooks on the decoder's layers, taken off again on exit;
whatever runs outside them belongs to the step.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from types import TracebackType

from inkling_core.config import InklingConfig
from inkling_core.model import Decoder

STEP = "step"


def kind_of(config: InklingConfig, layer: int) -> str:
    """`local-dense`, `local-MoE`, `global-dense` or `global-MoE`."""
    reach = "global" if config.window(layer) is None else "local"
    return f"{reach}-{'dense' if config.is_dense(layer) else 'MoE'}"


def layers_by_kind(config: InklingConfig) -> dict[str, int]:
    """How many layers of each kind there are, in the order in which they first appear."""
    return dict(Counter(kind_of(config, layer) for layer in range(config.num_hidden_layers)))


class LayerKinds:
    """`current` while entered: the kind of the layer that is running, or `step`."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.current = STEP
        self._hooks = ExitStack()

    def __enter__(self) -> LayerKinds:
        for number, layer in enumerate(self.decoder.layers):
            kind = kind_of(self.decoder.config, number)
            before = layer.register_forward_pre_hook(lambda *_, kind=kind: self._set(kind))
            after = layer.register_forward_hook(lambda *_: self._set(STEP))
            self._hooks.callback(before.remove)
            self._hooks.callback(after.remove)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hooks.close()
        self.current = STEP

    def _set(self, kind: str) -> None:
        self.current = kind
