"""Drives the parsers as vLLM's server does: its own detokenizer, its own composed parser.

A `Server` is one choice of the two command-line flags. It takes sampled ids in engine steps and
returns what a client gets, streamed or whole. Without vLLM everything here is skipped; the nox
session `adapters` runs it under four versions (`environments.py`).
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # importing vLLM and torch is not what is tested
    try:
        import vllm
    except ImportError:
        vllm = None
    else:
        import tokenizers
        import transformers
        import vllm.parser.abstract_parser
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
        from vllm.parser.parser_manager import ParserManager
        from vllm.sampling_params import RequestOutputKind, SamplingParams
        from vllm.v1.engine import EngineCoreRequest
        from vllm.v1.engine.detokenizer import IncrementalDetokenizer

        from inkling_parsers.adapters.vllm import register

from inkling_parsers.markers import Marker

Segments = Iterable[Sequence[str]]  # ("s", special token) or ("t", ordinary text)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = os.path.dirname(__file__)
    for item in items:
        if os.path.dirname(item.path) != here:
            continue
        item.add_marker(pytest.mark.filterwarnings("default"))  # vLLM's own deprecations
        if vllm is None:
            reason = "vLLM is not installed here; the nox session `adapters` runs this"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def vllm_version() -> str:
    expected = os.environ.get("INKLING_EXPECTED_VLLM")
    assert expected in (None, vllm.__version__.split("+")[0]), "another vLLM is on the path"
    return vllm.__version__


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A byte-level BPE tokenizer with the format's special tokens, loaded as vLLM loads one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        register()
        raw = tokenizers.Tokenizer(tokenizers.models.BPE())
        raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        raw.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=600,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        raw.train_from_iterator([_CORPUS], trainer)
        names = [marker.value for marker in Marker if marker is not Marker.UNNAMED]
        raw.add_special_tokens([*names, "<|unused_200024|>", "<|unused_200033|>", "</s>"])
        fast = transformers.PreTrainedTokenizerFast(
            tokenizer_object=raw, eos_token=Marker.CONTENT_MODEL_END_SAMPLING.value
        )
        folder = tmp_path_factory.mktemp("tokenizer")
        fast.save_pretrained(folder)
        from vllm.tokenizers import get_tokenizer

        return get_tokenizer(str(folder))


_CORPUS = (
    'The answer is 4, let me think about it. {"name":"get_weather","args":{"city":"Oslo"}} '
    "<|end_message|> <|message_model|> true false null hello world\n\n  user asks for the weather"
)


def encode(tokenizer: Any, segments: Segments) -> list[int]:
    """Ids of segments; text that spells a marker stays ordinary ids."""
    ids: list[int] = []
    for kind, text in segments:
        if kind == "s":
            ids.append(tokenizer.convert_tokens_to_ids(text))
            continue
        for piece in _unmarked(text):
            ids.extend(tokenizer.encode(piece, add_special_tokens=False))
    return ids


def _unmarked(text: str) -> list[str]:
    """Cut every "<|" in two: the tokenizer then cannot see a special token in ordinary text."""
    return [piece for part in text.split("<|") for piece in (part, "<", "|")][:-2]


@pytest.fixture(scope="session", name="encode")
def _encode() -> Any:
    return encode


@dataclasses.dataclass
class Answer:
    """What a client has at the end; `deltas` counts what was streamed."""

    reasoning: str = ""
    content: str = ""
    calls: list[list[str]] = dataclasses.field(default_factory=list)  # [name, arguments]
    deltas: int = 0

    def plain(self) -> tuple[str, str, list[list[str]]]:
        return self.reasoning, self.content, self.calls


class Server:
    """vLLM's parser for one choice of flags, called as its chat endpoint calls it."""

    def __init__(
        self, tokenizer: Any, reasoning: str | None, tool: str | None, prompt: Segments
    ) -> None:
        self.tokenizer = tokenizer
        self.parser_cls: Any = ParserManager.get_parser(
            tool_parser_name=tool,
            reasoning_parser_name=reasoning,
            enable_auto_tools=tool is not None,
            model_name="tiny",
        )
        self.prompt = encode(tokenizer, prompt)

    def request(self, adjust: bool = True, **fields: Any) -> Any:
        """A chat request, prepared as vLLM's renderer does before it samples."""
        messages = [{"role": "user", "content": "hi"}]
        request = ChatCompletionRequest(model="tiny", messages=messages, **fields)
        return self.adjusted(request) if adjust else request

    def adjusted(self, request: Any) -> Any:
        wants = (
            getattr(self.parser_cls, "always_adjust_request", False)
            or self.parser_cls.reasoning_parser_cls is not None
            or request.tool_choice != "none"
        )
        if not wants:
            return request
        return self.parser_cls(self.tokenizer, request.tools).adjust_request(request=request)

    def responses_request(self, **fields: Any) -> Any:
        return self.adjusted(ResponsesRequest(model="tiny", input="hi", **fields))

    def stream(self, request: Any, steps: Sequence[Sequence[int]], stop: Any = ()) -> Answer:
        """Run engine steps through the detokenizer and `parse_delta`."""
        parser = self.parser_cls(self.tokenizer, request.tools)
        answer = Answer()
        for text, ids, finished in self._texts(request, steps, stop):
            delta = parser.parse_delta(
                delta_text=text,
                delta_token_ids=ids,
                request=request,
                prompt_token_ids=self.prompt,
                finished=finished,
            )
            if delta is not None:
                _add(answer, delta)
        return answer

    def whole(self, request: Any, steps: Sequence[Sequence[int]], stop: Any = ()) -> Answer:
        """The same through `parse`."""
        parser = self.parser_cls(self.tokenizer, request.tools)
        deltas = list(self._texts(request, steps, stop))
        if hasattr(vllm.parser.abstract_parser.Parser, "set_prompt_token_ids"):
            parser.set_prompt_token_ids(self.prompt)  # as 0.32 and later do
        reasoning, content, calls = parser.parse(
            "".join(text for text, _, _ in deltas),
            request,
            enable_auto_tools=self.parser_cls.tool_parser_cls is not None,
            model_output_token_ids=[token for _, ids, _ in deltas for token in ids],
        )
        found = [[call.name, call.arguments] for call in calls or ()]
        return Answer(reasoning or "", content or "", found)

    def _texts(
        self, request: Any, steps: Sequence[Sequence[int]], stop: Any
    ) -> Iterable[tuple[str, list[int], bool]]:
        """(new text, new ids, finished) of each step, from vLLM's detokenizer."""
        params = SamplingParams(
            skip_special_tokens=request.skip_special_tokens is not False,
            stop=list(stop),
            output_kind=RequestOutputKind.DELTA,
        )
        core = _core_request(self.prompt, params)
        detokenizer = IncrementalDetokenizer.from_new_request(self.tokenizer, core)
        stop_id = self.tokenizer.convert_tokens_to_ids(Marker.CONTENT_MODEL_END_SAMPLING.value)
        for at, step in enumerate(steps):
            ids = list(step)
            known = len(detokenizer.output_token_ids)
            stopped = detokenizer.update(ids, bool(ids) and ids[-1] == stop_id)
            last = at == len(steps) - 1 or stopped is not None
            text = detokenizer.get_next_output_text(last, delta=True)
            yield text, list(detokenizer.output_token_ids[known:]), last
            if last:
                return


def _core_request(prompt: list[int], params: Any) -> Any:
    fields: dict[str, Any] = dict.fromkeys(EngineCoreRequest.__struct_fields__)
    fields.update(request_id="1", prompt_token_ids=prompt, sampling_params=params)
    fields.update(arrival_time=0.0, client_index=0, current_wave=0, priority=0, resumable=False)
    return EngineCoreRequest(**fields)


def _add(answer: Answer, delta: Any) -> None:
    answer.deltas += 1
    answer.reasoning += delta.reasoning or ""
    answer.content += delta.content or ""
    for call in delta.tool_calls or ():
        if call.id is not None:
            assert call.index == len(answer.calls), "calls start in order"
            answer.calls.append([call.function.name, call.function.arguments or ""])
        else:
            answer.calls[call.index][1] += call.function.arguments or ""


@pytest.fixture
def serve(tokenizer: Any):
    """Make a `Server`; the prompt ends in <|message_model|> unless said otherwise."""

    def make(
        reasoning: str | None = "inkling_py",
        tool: str | None = "inkling_py",
        prompt: Segments = (("s", "<|message_model|>"),),
    ) -> Server:
        return Server(tokenizer, reasoning, tool, prompt)

    return make
