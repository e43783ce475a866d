"""The configuration object that vLLM and transformers see for a published Inkling checkpoint.

What it is: a `PreTrainedConfig` that reads `config.json` through `InklingConfig` (both spellings,
fully validated) and shows vLLM the handful of attributes it asks for. Text only: the towers in
the file are neither built nor offered, so a checkpoint with them is served as a text model.

What it is not: a second definition of the geometry; `geometry` is the one object.
"""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig

from inkling_core.config import InklingConfig
from inkling_core.serving.paths import ARCHITECTURES

MODEL_TYPE = "inkling_mm_model"


class InklingServingConfig(PretrainedConfig):
    """`config.json` of a checkpoint in the published format.

    Raises ConfigError, listing every fault, for a document that is not an Inkling's.
    """

    model_type = MODEL_TYPE
    has_no_defaults_at_init = True

    def __init__(self, **document: Any) -> None:
        extras = {name: document.pop(name) for name in list(document) if name in _LOADER_KEYS}
        geometry = InklingConfig.from_dict({"model_type": self.model_type, **document})
        super().__init__(
            architectures=[ARCHITECTURES[0]],
            # transformers takes both as extra keywords; its generated signature lists neither
            tie_word_embeddings=False,  # type: ignore[call-arg]
            eos_token_id=list(geometry.stop_token_ids),  # type: ignore[call-arg]
            **extras,
        )
        self.document = document
        self.dtype = geometry.dtype
        self.vocab_size = geometry.unpadded_vocab_size  # further ids have no logit
        self.hidden_size = geometry.hidden_size
        self.num_hidden_layers = geometry.num_hidden_layers
        self.num_attention_heads = geometry.num_attention_heads
        self.num_key_value_heads = geometry.num_key_value_heads
        self.head_dim = geometry.head_dim
        self.num_experts = geometry.n_routed_experts
        self.num_experts_per_tok = geometry.num_experts_per_tok
        self.max_position_embeddings = geometry.max_position_embeddings

    @property
    def geometry(self) -> InklingConfig:
        """The validated geometry (made anew: vLLM copies and pickles this object)."""
        return InklingConfig.from_dict({"model_type": self.model_type, **self.document})


# Arguments that transformers' own loading passes beside the document.
_LOADER_KEYS = frozenset(
    {"name_or_path", "_commit_hash", "attn_implementation", "experts_implementation"}
)
