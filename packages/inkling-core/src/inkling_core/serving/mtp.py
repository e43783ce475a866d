"""Refusal of multi-token prediction: the checkpoint's MTP layers are not served.

Not a model. It exists because vLLM has an in-tree class under this architecture name that would
otherwise be picked for a speculative configuration and fail in a GPU kernel.
"""

from __future__ import annotations

from typing import Any

from torch import nn


class MtpIsNotServed(nn.Module):
    """Raises ValueError on construction."""

    def __init__(self, **_: Any) -> None:
        super().__init__()
        raise ValueError(
            "multi-token prediction is not served: conv rows cannot be rolled back when a draft "
            "token is rejected. Start without a speculative configuration"
        )

    def forward(self, input_ids: Any, positions: Any) -> Any:
        """Never reached; vLLM looks at the signature before it builds a model."""
        raise AssertionError("unreachable: construction always raises")

    def compute_logits(self, hidden_states: Any) -> Any:
        """Never reached, see `forward`."""
        raise AssertionError("unreachable: construction always raises")

    def embed_input_ids(self, input_ids: Any) -> Any:
        """Never reached, see `forward`."""
        raise AssertionError("unreachable: construction always raises")
