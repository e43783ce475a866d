"""Chat messages to prompt ids inside vLLM's API server, through `inkling_parsers.render`.

What it is: the class that vLLM loads for renderer mode "inkling". Prompt ids of a chat request are
exactly `inkling_parsers.render(...).ids(...)`; everything that has no rendering (unknown effort,
media parts, malformed messages) raises there and leaves vLLM as HTTP 400.

It also refuses a prompt that, with the asked-for answer, does not fit the context. vLLM would cut
the answer short without a word.

What it is not: a chat template, a parser of answers, or middleware.
"""

from __future__ import annotations

import os
from typing import Any

from vllm.config import VllmConfig
from vllm.exceptions import VLLMValidationError
from vllm.renderers.base import BaseRenderer
from vllm.renderers.inputs.preprocess import parse_dec_only_prompt
from vllm.renderers.params import ChatParams, TokenizeParams
from vllm.tokenizers.hf import HfTokenizer
from vllm.utils.async_utils import make_async

from inkling_core.serving.settings import ServeSettings
from inkling_parsers.effort import DEFAULT_EFFORT, effort_from_request
from inkling_parsers.render import Rendered, plain_encoder, render

REFUSED_MEDIA = ("image", "audio")


class InklingRenderer(BaseRenderer[HfTokenizer]):  # type: ignore[type-var]  # vLLM 0.32 does so too
    """See the module docstring."""

    def __init__(self, config: VllmConfig, tokenizer: HfTokenizer | None) -> None:
        super().__init__(config, tokenizer)
        loaded = self.get_tokenizer()
        self._special_ids: dict[str, int] = loaded.get_added_vocab()
        self._encode = plain_encoder(
            lambda text: loaded.encode(text, add_special_tokens=False), self._special_ids
        )
        self._default_effort = ServeSettings.from_environment(os.environ).default_effort
        self._prompt_ids_async = make_async(self._prompt_ids, executor=self._executor)

    def render_messages(self, messages: list[Any], params: ChatParams) -> tuple[list[Any], Any]:
        """Returns the conversation (kept for vLLM's bookkeeping) and the prompt ids."""
        return _conversation(messages), parse_dec_only_prompt(self._prompt_ids(messages, params))

    async def render_messages_async(
        self, messages: list[Any], params: ChatParams
    ) -> tuple[list[Any], Any]:
        """As `render_messages`, off the event loop."""
        ids = await self._prompt_ids_async(messages, params)
        return _conversation(messages), parse_dec_only_prompt(ids)

    def _prompt_ids(self, messages: list[Any], params: ChatParams) -> list[int]:
        options = params.chat_template_kwargs or {}
        rendered = render_request(messages, options, self._default_effort)
        return rendered.ids(self._encode, self._special_ids)

    def _tokenize_singleton_prompt(self, prompt: Any, params: TokenizeParams) -> Any:
        return self._refuse_overflow(super()._tokenize_singleton_prompt(prompt, params), params)

    async def _tokenize_singleton_prompt_async(self, prompt: Any, params: TokenizeParams) -> Any:
        tokenized = await super()._tokenize_singleton_prompt_async(prompt, params)
        return self._refuse_overflow(tokenized, params)

    def _refuse_overflow(self, prompt: Any, params: TokenizeParams) -> Any:
        limit, answer = self.model_config.max_model_len, params.max_output_tokens or 0
        length = len(prompt["prompt_token_ids"])
        if length + max(answer, 1) > limit:
            raise VLLMValidationError(
                f"the prompt has {length} tokens and {answer} are asked for, together "
                f"{length + answer}; this server's context is {limit} tokens: shorten the prompt "
                "or lower max_tokens",
                parameter="input_tokens",
                value=length,
            )
        return prompt


def render_request(
    messages: list[Any], options: dict[str, Any], default_effort: float = DEFAULT_EFFORT
) -> Rendered:
    """The prompt of a chat request. `options`: its chat_template_kwargs, vLLM's own merged in.

    Raises RenderError (a ValueError) naming the message and field that have no rendering.
    """
    if options.get("continue_final_message"):
        raise ValueError(
            "continue_final_message is not supported: a turn of the model ends with its own "
            "token. Send a completion request with your own prompt ids instead"
        )
    return render(
        messages,
        tools=options.get("tools"),
        effort=effort_from_request({"chat_template_kwargs": options}, default=default_effort),
        add_generation_prompt=options.get("add_generation_prompt", True),
        refuse_media=REFUSED_MEDIA,
    )


def _conversation(messages: list[Any]) -> list[Any]:
    """Role and content of each message: all that vLLM reads of a conversation (for `echo`)."""
    return [
        {"role": message.get("role", ""), "content": message.get("content")}
        for message in messages
        if isinstance(message, dict)
    ]
