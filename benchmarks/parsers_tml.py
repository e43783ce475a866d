"""The side of `parsers.py` that needs tml-renderers 0.2.1, the model owner's parser.

    PATH_TO_PYTHON parsers_tml.py ROUNDS TOKENS        prints JSON rows for the report

Both parsers read the same token ids, whole, from the owner's own tokenizer; ours decodes them with
it. The owner's answer counts as read once its arguments are. Not here: streaming, which the
owner's parser has not.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).resolve().parents[1] / "packages" / "inkling-parsers" / "src"
sys.path.insert(0, str(SOURCES))

from tml_renderers import chat, tokenizers, v0  # noqa: E402 - as the two below

from inkling_parsers.markers import SpecialTokens  # noqa: E402 - found through the line above
from inkling_parsers.parser import parse  # noqa: E402


def median_seconds(run: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return statistics.median(times)


def inputs(tokenizer: Any, tokens: int) -> dict[str, list[int]]:
    """Answers of about `tokens` ids each."""

    def special(name: str) -> int:
        return tokenizer.encode_special(name)

    prose = " ".join(f"word{at % 97} and item {at}," for at in range(tokens // 6))
    items = [{"id": at, "name": f"n{at}", "ok": True} for at in range(tokens // 13)]
    calls = {"a string": {"text": prose}, "small objects": {"items": items}}
    model, end = special("message_model"), special("end_message")
    plain = tokenizer.encode_ordinary
    stop = special("content_model_end_sampling")
    thinking = [model, special("content_thinking"), *plain(prose), end]
    rows = {
        "thinking and text": [*thinking, model, special("content_text"), *plain(prose), end, stop]
    }
    for what, arguments in calls.items():
        payload = json.dumps({"name": "f", "args": arguments}, separators=(",", ":"))
        opening = [model, *plain("f"), special("content_invoke_tool_json")]
        rows[f"call of {what}"] = [*opening, *plain(payload), end, stop]
    return rows


def owners(parser: Any, ids: list[int]) -> Any:
    """What the owner's parser says, in a form that compares."""
    said: list[Any] = []
    for message in parser.parse_tokens(ids):
        content = message.content
        if isinstance(content, chat.InvokeTool):
            said.append({arg.name: json.loads(arg.value) for arg in content.args})
        elif isinstance(content, (chat.Text, chat.Thinking)):
            said.append(content.text)
    return said


def our_answer(parsed: Any) -> Any:
    said = [text for text in (parsed.reasoning, parsed.content) if text is not None]
    return [*said, *(json.loads(call.arguments) for call in parsed.tool_calls)]


def main() -> None:
    warnings.simplefilter("ignore")  # the owner's package warns that a class was renamed
    rounds, tokens = int(sys.argv[1]), int(sys.argv[2])
    tokenizer = tokenizers.O200kBaseChatTokenizer()
    names = tokenizer.special_tokens()
    vocabulary = SpecialTokens.from_vocab(
        {f"<|{name}|>": tokenizer.encode_special(name) for name in names}
    )
    question = chat.OpenAIMessage.from_oss_dict({"role": "user", "content": "hi"})
    _, parser = v0.Renderer(tokenizer).render_for_completion([question])
    rows = []
    for what, ids in inputs(tokenizer, tokens).items():

        def ours(ids: list[int] = ids) -> Any:
            return parse(ids, vocabulary, decode=tokenizer.decode_bytes)

        rows.append(
            {
                "what": f"{what}, {len(ids):,} ids",
                "same": owners(parser, ids) == our_answer(ours()),
                "tml": median_seconds(lambda ids=ids: parser.parse_tokens(ids), rounds),
                "ours": median_seconds(ours, rounds),
            }
        )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
