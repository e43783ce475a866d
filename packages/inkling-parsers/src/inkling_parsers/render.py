"""Chat messages to prompt segments: the one place that knows the order and spelling of a prompt.

Not here: what a valid request is (``messages``), how an effort is spelled (``effort``), how a
tokenizer encodes text. Nothing is trimmed, invented or truncated.

    prompt   = [tools] leading system messages [effort] other messages [<|message_model|>]
    message  = ROLE [name] KIND text <|end_message|>          one per content part
    assistant turn = [thinking] text* call* <|content_model_end_sampling|>
    call     = <|message_model|> NAME <|content_invoke_tool_json|> JSON <|end_message|>
    JSON     = {"name":..,"args":..}

A segment is either one special token or ordinary text, and stays what it is: `Rendered.ids` never
turns text into a special id, whatever the text spells.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from inkling_parsers.canonical_json import write_json
from inkling_parsers.effort import (
    DEFAULT_EFFORT,
    MAX_EFFORT,
    effort_text,
    owner_rounded,
    resolve_effort,
)
from inkling_parsers.markers import ALIASES, Marker, SpecialTokens
from inkling_parsers.messages import Call, Message, Part, read_messages, read_tools
from inkling_parsers.render_errors import Place, RenderError, shown

FlavorName = Literal["vllm", "owner"]
Media = Literal["image", "audio"]

_ROLE_MARKERS = {
    "user": Marker.MESSAGE_USER,
    "assistant": Marker.MESSAGE_MODEL,
    "system": Marker.MESSAGE_SYSTEM,
    "developer": Marker.MESSAGE_SYSTEM,
    "tool": Marker.MESSAGE_TOOL,
}
_SYSTEM_ROLES = ("system", "developer")


class Segment(NamedTuple):
    """`kind` "s": `text` spells one special token. `kind` "t": ordinary text, never empty."""

    kind: Literal["s", "t"]
    text: str


@dataclass(frozen=True)
class Rendered:
    """A rendered prompt."""

    segments: tuple[Segment, ...]

    @property
    def text(self) -> str:
        """All segments joined; what a marker is and what merely spells one is lost here."""
        return "".join(segment.text for segment in self.segments)

    def ids(
        self,
        encode_ordinary: Callable[[str], Iterable[int]],
        special_ids: Mapping[str, int] | SpecialTokens,
    ) -> list[int]:
        """Token ids of the prompt.

        `encode_ordinary` encodes text in which nothing is special; `special_ids` is a vocabulary's
        SpecialTokens, or a mapping of marker spellings to ids (best of the whole special
        vocabulary). Raises RenderError where a marker has no id, or where the encoder turns text
        into one of `special_ids`.
        """
        id_of = _ids_by_spelling(special_ids)
        reserved = _reserved_ids(special_ids)
        ids: list[int] = []
        for kind, text in self.segments:
            if kind == "s":
                if text not in id_of:
                    raise RenderError(None, "special_ids", f"has no id for {text}")
                ids.append(id_of[text])
                continue
            encoded = list(encode_ordinary(text))
            if not reserved.isdisjoint(encoded):
                raise RenderError(
                    None,
                    "encode_ordinary",
                    f"turned the text {shown(text)} into a special id; encode with special tokens "
                    "off, or wrap the encoder in inkling_parsers.render.plain_encoder",
                )
            ids.extend(encoded)
        return ids


@dataclass(frozen=True)
class _Flavor:
    """Where the served prompt and the model owner's renderer differ."""

    effort_zero: str
    effort_maximum: float
    effort_in_thousandths: bool
    sorts_nested_arguments: bool
    unique_argument_keys: bool
    shows_empty_content: bool  # content "" or null makes an empty block where nothing else is said
    finds_tool_names: bool  # a result without a name takes that of the call with its id
    joins_tool_parts: bool  # a result is one text block


_FLAVORS: Mapping[str, _Flavor] = {
    "vllm": _Flavor("0.0", MAX_EFFORT, False, True, False, False, True, True),
    "owner": _Flavor("0", 1.0, True, False, True, True, False, False),
}


def render(
    messages: Iterable[Any],
    tools: Iterable[Any] | None = None,
    effort: float | str | None = DEFAULT_EFFORT,
    add_generation_prompt: bool = True,
    flavor: FlavorName = "vllm",
    refuse_media: Collection[Media] = (),
) -> Rendered:
    """Render a chat request.

    `messages` and `tools` have OpenAI's form. `effort` None leaves the effort block out; see
    resolve_effort for the rest. `flavor` "vllm" is the prompt that vLLM 0.32 serves, "owner" that
    of tml-renderers 0.2.1 (whose prompts end without <|message_model|>: pass
    add_generation_prompt=False). An image or audio part becomes its bare frame; `refuse_media`
    names the kinds that the server cannot take. Raises RenderError for a request without rendering.
    """
    rules = _FLAVORS.get(flavor)
    if rules is None:
        raise RenderError(None, "flavor", f"unknown flavor {shown(flavor)}; use vllm or owner")
    read = read_messages(messages, unique_keys=rules.unique_argument_keys)
    declared = [*read_tools(tools, Place(None, "tools"))]
    for message in read:
        declared.extend(message.tools)
    level = None if effort is None else resolve_effort(effort, maximum=rules.effort_maximum)

    writer = _Writer(rules, refuse_media)
    if declared:
        writer.block("system", Marker.CONTENT_XML, _tools_json(declared), "tool_declare")
    for message in read:
        if level is not None and message.role not in _SYSTEM_ROLES:
            writer.effort(level)
            level = None
        writer.message(message)
    if level is not None:
        writer.effort(level)
    if add_generation_prompt:
        writer.special(Marker.MESSAGE_MODEL)
    return Rendered(tuple(writer.segments))


def _ids_by_spelling(special_ids: Mapping[str, int] | SpecialTokens) -> dict[str, int]:
    if isinstance(special_ids, SpecialTokens):
        return {marker.value: id_ for marker, id_ in special_ids.ids.items()}
    aliases = {ALIASES[name].value: id_ for name, id_ in special_ids.items() if name in ALIASES}
    return {**aliases, **special_ids}


def _reserved_ids(special_ids: Mapping[str, int] | SpecialTokens) -> frozenset[int]:
    if isinstance(special_ids, SpecialTokens):
        return frozenset(special_ids.markers)
    return frozenset(special_ids.values())


def plain_encoder(
    encode: Callable[[str], Sequence[int]], special_ids: Mapping[str, int] | SpecialTokens
) -> Callable[[str], list[int]]:
    """`encode`, made safe for a tokenizer that maps spelled markers to their special ids.

    A text in which `encode` finds a special token is encoded again in pieces, cut inside each
    marker spelling, so that no piece spells one. Other text is encoded as it was.
    """
    reserved = _reserved_ids(special_ids)
    if isinstance(special_ids, SpecialTokens):
        spellings = list(special_ids.names.values())
    else:
        spellings = list(special_ids)

    def encode_plain(text: str) -> list[int]:
        whole = list(encode(text))
        if reserved.isdisjoint(whole):
            return whole
        return [id_ for piece in _cut_inside(text, spellings) for id_ in encode(piece)]

    return encode_plain


def _cut_inside(text: str, spellings: Sequence[str]) -> list[str]:
    """`text` in pieces, cut after the first character of each spelling in it."""
    cuts = {0, len(text)}
    for spelling in spellings:
        start = text.find(spelling)
        while start >= 0:
            cuts.add(start + 1)
            start = text.find(spelling, start + 1)
    bounds = sorted(cuts)
    return [text[a:b] for a, b in pairwise(bounds)]


@dataclass
class _Writer:
    """Collects segments; one method for each thing that a prompt holds."""

    rules: _Flavor
    refuse_media: Collection[Media]
    segments: list[Segment] = field(default_factory=list)
    names_by_call: dict[str, str] = field(default_factory=dict)

    def special(self, marker: str) -> None:
        self.segments.append(Segment("s", str(marker)))

    def ordinary(self, text: str) -> None:
        if text:
            self.segments.append(Segment("t", text))

    def block(self, role: str, kind: str, text: str, name: str = "") -> None:
        self.special(_ROLE_MARKERS[role])
        self.ordinary(name)
        self.special(kind)
        self.ordinary(text)
        self.special(Marker.END_MESSAGE)

    def effort(self, level: float) -> None:
        if self.rules.effort_in_thousandths:
            level = owner_rounded(level)
        text = effort_text(level, zero=self.rules.effort_zero)
        self.block("system", Marker.CONTENT_TEXT, text)

    def message(self, message: Message) -> None:
        if message.role == "tool":
            self.tool_result(message)
            return
        if message.reasoning:
            self.block(message.role, Marker.CONTENT_THINKING, message.reasoning)
        for part in self.parts(message):
            self.part(message.role, part)
        for call in message.calls:
            self.call(call)
        if message.role == "assistant":
            self.special(Marker.CONTENT_MODEL_END_SAMPLING)

    def parts(self, message: Message) -> tuple[Part, ...]:
        says_nothing = message.blank and not message.reasoning and not message.calls
        if self.rules.shows_empty_content and says_nothing:
            return (Part("text", "", message.place),)
        return message.parts

    def part(self, role: str, part: Part, name: str = "") -> None:
        if part.kind == "text":
            self.block(role, Marker.CONTENT_TEXT, part.text, name)
            return
        if part.kind in self.refuse_media:
            raise part.place.error(f"is {part.kind} input, which this server does not take")
        self.special(_ROLE_MARKERS[role])
        self.ordinary(name)
        if part.kind == "image":
            self.special(Marker.CONTENT_IMAGE)
        else:
            self.special(Marker.CONTENT_AUDIO_INPUT)
            self.special(Marker.AUDIO_END)
        self.special(Marker.END_MESSAGE)

    def call(self, call: Call) -> None:
        place = call.place.key("function").key("arguments")
        members: Mapping[str, Any] = call.arguments
        if not self.rules.sorts_nested_arguments:
            members = _sorted_members(members, place)
        args = write_json(dict(members), place, sort_keys=self.rules.sorts_nested_arguments)
        name = write_json(call.name, call.place.key("function").key("name"))
        payload = f'{{"name":{name},"args":{args}}}'
        self.block("assistant", Marker.CONTENT_INVOKE_TOOL_JSON, payload, call.name)
        if call.id:
            self.names_by_call[call.id] = call.name

    def tool_result(self, message: Message) -> None:
        name = message.name
        if not name and self.rules.finds_tool_names:
            name = self.names_by_call.get(message.tool_call_id, "")
        if not self.rules.joins_tool_parts:
            for part in self.parts(message):
                self.part("tool", part, name)
            return
        for part in message.parts:
            if part.kind != "text":
                raise part.place.error(f"a tool result must be text, got {part.kind}")
        text = "".join(part.text for part in message.parts)
        self.block("tool", Marker.CONTENT_TEXT, text, name)


def _sorted_members(arguments: Mapping[str, Any], place: Place) -> dict[str, Any]:
    try:
        return {key: arguments[key] for key in sorted(arguments)}
    except TypeError:
        raise place.error("has keys that are not strings") from None


def _tools_json(declared: Sequence[Mapping[str, Any]]) -> str:
    return write_json(list(declared), Place(None, "tools"))
