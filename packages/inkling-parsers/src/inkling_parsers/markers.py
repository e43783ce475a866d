"""The special tokens of the chat format: their names, their classes, and their ids in a vocabulary.

Not a tokenizer: it only says which ids are special and what they mean. `lexer` finds them in a
stream, `grammar` says what each does. Ids are always looked up by name, never written down here:
the published models use 199998 to 200057, a small test vocabulary uses others.

Layout of one message (what the rest of the package calls a block):

    ROLE [header text] KIND text END
    <|message_model|>f<|content_invoke_tool_json|>{...}<|end_message|>
    ... and after the last block of an answer one STOP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class MarkerClass(str, Enum):
    """What a marker does in the grammar; the columns of `grammar.TABLE`."""

    ROLE = "role"
    KIND = "kind"
    CALL = "call"
    END = "end"
    STOP = "stop"
    OTHER = "other"


class Marker(str, Enum):
    """A special token by meaning; the value is its spelling in decoded text."""

    MESSAGE_USER = "<|message_user|>"
    MESSAGE_MODEL = "<|message_model|>"
    MESSAGE_SYSTEM = "<|message_system|>"
    MESSAGE_TOOL = "<|message_tool|>"
    CONTENT_TEXT = "<|content_text|>"
    CONTENT_THINKING = "<|content_thinking|>"
    CONTENT_IMAGE = "<|content_image|>"
    CONTENT_AUDIO_INPUT = "<|content_audio_input|>"
    CONTENT_XML = "<|content_xml|>"
    CONTENT_TOOL_ERROR = "<|content_tool_error|>"
    CONTENT_INVOKE_TOOL_TEXT = "<|content_invoke_tool_text|>"
    CONTENT_INVOKE_TOOL_JSON = "<|content_invoke_tool_json|>"
    END_MESSAGE = "<|end_message|>"
    CONTENT_MODEL_END_SAMPLING = "<|content_model_end_sampling|>"
    ENDOFTEXT = "<|endoftext|>"
    AUDIO = "<|audio|>"
    AUDIO_END = "<|audio_end|>"
    BEGIN_OF_TEXT = "<|begin_of_text|>"
    UNNAMED = "<|unused|>"

    def __str__(self) -> str:
        return str(self.value)

    @property
    def role(self) -> str | None:
        """`user`, `model`, `system` or `tool` for a role marker, else None."""
        return self.value[len("<|message_") : -2] if self in _ROLES else None


_ROLES = frozenset(
    {Marker.MESSAGE_USER, Marker.MESSAGE_MODEL, Marker.MESSAGE_SYSTEM, Marker.MESSAGE_TOOL}
)
_KINDS = frozenset(
    {
        Marker.CONTENT_TEXT,
        Marker.CONTENT_THINKING,
        Marker.CONTENT_IMAGE,
        Marker.CONTENT_AUDIO_INPUT,
        Marker.CONTENT_XML,
        Marker.CONTENT_TOOL_ERROR,
        Marker.CONTENT_INVOKE_TOOL_TEXT,
    }
)


def _class_of(marker: Marker) -> MarkerClass:
    if marker in _ROLES:
        return MarkerClass.ROLE
    if marker in _KINDS:
        return MarkerClass.KIND
    return {
        Marker.CONTENT_INVOKE_TOOL_JSON: MarkerClass.CALL,
        Marker.END_MESSAGE: MarkerClass.END,
        Marker.CONTENT_MODEL_END_SAMPLING: MarkerClass.STOP,
        Marker.ENDOFTEXT: MarkerClass.STOP,
    }.get(marker, MarkerClass.OTHER)


CLASSES: Mapping[Marker, MarkerClass] = {marker: _class_of(marker) for marker in Marker}

# The published vocabulary spells the XML opener as an unnamed slot.
ALIASES: Mapping[str, Marker] = {"<|unused_200024|>": Marker.CONTENT_XML}

# What text mode takes for a marker. The unnamed slots of the published vocabulary are here too:
# decoded with special tokens kept they must not reach a reader either.
SPELLINGS: Mapping[str, Marker] = {
    **{f"<|unused_{slot}|>": Marker.UNNAMED for slot in range(199998, 200058)},
    **ALIASES,
    **{marker.value: marker for marker in Marker if marker is not Marker.UNNAMED},
}

REQUIRED = (
    Marker.MESSAGE_MODEL,
    Marker.CONTENT_TEXT,
    Marker.CONTENT_THINKING,
    Marker.CONTENT_INVOKE_TOOL_JSON,
    Marker.END_MESSAGE,
    Marker.CONTENT_MODEL_END_SAMPLING,
)

_SPECIAL_NAME = re.compile(r"<\|[A-Za-z0-9_]+\|>")


class VocabularyError(ValueError):
    """A vocabulary lacks special tokens that the format cannot do without."""


@dataclass(frozen=True)
class SpecialTokens:
    """The special ids of one vocabulary.

    `markers` maps every special id to its meaning (unnamed slots to `Marker.UNNAMED`),
    `names` maps it to its spelling there, `ids` maps each meaning back to its id.
    """

    markers: Mapping[int, Marker]
    names: Mapping[int, str]
    ids: Mapping[Marker, int]

    @classmethod
    def from_vocab(
        cls, vocab: Mapping[str, int], other_special_ids: Iterable[int] = ()
    ) -> SpecialTokens:
        """Look the markers up by name in a token -> id mapping.

        Every entry spelled `<|name|>` counts as special, as does each of `other_special_ids`
        (a tokenizer's own list, say), so that none of them can become text. `<|endoftext|>`,
        media, tool text, tool error and XML are optional; the rest is not.

        Raises VocabularyError naming what is missing.
        """
        names = {id_: name for name, id_ in vocab.items() if _SPECIAL_NAME.fullmatch(name)}
        markers = {id_: SPELLINGS.get(name, Marker.UNNAMED) for id_, name in names.items()}
        for id_ in other_special_ids:
            markers.setdefault(id_, Marker.UNNAMED)
            names.setdefault(id_, Marker.UNNAMED.value)
        ids = {marker: id_ for id_, marker in markers.items() if marker is not Marker.UNNAMED}
        missing = [marker.value for marker in REQUIRED if marker not in ids]
        if missing:
            raise VocabularyError(
                f"the vocabulary ({len(vocab)} entries) lacks the special tokens "
                f"{', '.join(missing)}; give the mapping of an Inkling tokenizer "
                "(for transformers: tokenizer.get_vocab())"
            )
        return cls(markers=markers, names=names, ids=ids)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids that end an answer, in ascending order."""
        stops = (Marker.CONTENT_MODEL_END_SAMPLING, Marker.ENDOFTEXT)
        return tuple(sorted(self.ids[marker] for marker in stops if marker in self.ids))
