"""Byte vocabulary of inkling-nano: 256 bytes, then every special token under its real name.

What it is: the table from token names to ids (byte b has id b; specials follow from 256 in the
order of the published ids) and the text encoder of training.
What it is not: the tokenizer files (export.py writes them from this table) or the chat format
(inkling_parsers; rows.py has the fast path that training uses).

Vocabulary: 320 embedding rows, of which the first 288 are real (`unpadded_vocab_size`). The rows
above are padding that a server has to cut away; the shipped head fills them with loud values.
"""

from __future__ import annotations

SPECIAL_NAMES = (
    "<|endoftext|>",
    "<|message_user|>",
    "<|message_model|>",
    "<|message_system|>",
    "<|message_tool|>",
    "<|content_text|>",
    "<|content_image|>",
    "<|content_model_end_sampling|>",
    "<|content_thinking|>",
    "<|end_message|>",
    "<|content_audio_input|>",
    "<|content_tool_error|>",
    "<|content_xml|>",
    "<|audio_end|>",
    "<|content_invoke_tool_json|>",
    "<|content_invoke_tool_text|>",
)
FIRST_SPECIAL = 256
SPECIAL_IDS = {name: FIRST_SPECIAL + i for i, name in enumerate(SPECIAL_NAMES)}
VOCAB_SIZE = 320
UNPADDED_VOCAB_SIZE = 288

MESSAGE_USER = SPECIAL_IDS["<|message_user|>"]
MESSAGE_MODEL = SPECIAL_IDS["<|message_model|>"]
MESSAGE_SYSTEM = SPECIAL_IDS["<|message_system|>"]
MESSAGE_TOOL = SPECIAL_IDS["<|message_tool|>"]
CONTENT_TEXT = SPECIAL_IDS["<|content_text|>"]
CONTENT_THINKING = SPECIAL_IDS["<|content_thinking|>"]
CONTENT_XML = SPECIAL_IDS["<|content_xml|>"]
INVOKE_TOOL_JSON = SPECIAL_IDS["<|content_invoke_tool_json|>"]
END_MESSAGE = SPECIAL_IDS["<|end_message|>"]
END_SAMPLING = SPECIAL_IDS["<|content_model_end_sampling|>"]
STOP_IDS = (END_SAMPLING, SPECIAL_IDS["<|endoftext|>"])


def encode(text: str) -> list[int]:
    """Ids of ordinary text: its UTF-8 bytes. A marker spelled in plain text stays plain text."""
    return list(text.encode())


def decode(ids: list[int]) -> str:
    """Text of `ids` for logs and error reports: specials by name, bad UTF-8 replaced."""
    out: list[str] = []
    plain = bytearray()
    for token in ids:
        if token < FIRST_SPECIAL:
            plain.append(token)
            continue
        out.append(plain.decode(errors="replace"))
        plain.clear()
        index = token - FIRST_SPECIAL
        out.append(SPECIAL_NAMES[index] if index < len(SPECIAL_NAMES) else f"<|id {token}|>")
    return "".join(out) + plain.decode(errors="replace")
