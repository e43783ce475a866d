"""strict=True: the model owner's rules, and its kinds of error."""

from __future__ import annotations

import pytest

from inkling_parsers import ParseError, SpecialTokens, StreamParser, parse, strict

ROLE, CALL, END = "<|message_model|>", "<|content_invoke_tool_json|>", "<|end_message|>"


def kind_of(answer: str) -> str | None:
    try:
        parse(answer, strict=True)
    except ParseError as error:
        return error.kind
    return None


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ('{"name":"f","args":{"a":[1,"\\ud83d\\ude00"]}}', None),
        ('{"name":"f","args":{"a":1,"a":2}}', None),
        ('{"name":"f","args":{"s":"\\\\ud800"}}', None),
        ("", "JsonIncompleteError"),
        ('{"name":"f","args":{"a":{"b":1}}', "JsonIncompleteError"),
        ('{"name":"f","args":{"a":"x', "JsonIncompleteError"),
        ('{"name":"f","args":{"a":-', "JsonIncompleteError"),
        ('{"name":"f","args":{"a":1.', "JsonIncompleteError"),
        ('{"name":"f","args":{"a":-10.5e+', "JsonIncompleteError"),
        ('{"name":"f","args":{"a":fal', "JsonIncompleteError"),
        ('{"name":"f","args":{"a":"\\', "JsonIncompleteError"),
        ('{"name":"f","args":{"a":"\\u00', "JsonIncompleteError"),
        ('{"name":"f","args":{"a":"\\u0"}', "JsonIncompleteError"),
        ('{"name":"f","args":{"a":"\\u0000', "JsonIncompleteError"),
        ('{"name":"f","args":{"a":"\\ud83d', "JsonIncompleteError"),
        ('{"name":"f","args":{"a":"\\ud83d\\u0', "JsonIncompleteError"),
        ('{"name":"f","args":{"a":"\\u0"}}', "JsonSyntaxError"),
        ('{"name":"f","args":{"a":"\\ud83d\\\\', "JsonSyntaxError"),
        ('{"name":"f","args":{"a":1.5.', "JsonSyntaxError"),
        ('{"name":"f","args":{"a":01', "JsonSyntaxError"),
        ('{"name":"f","args":{"a":falx', "JsonSyntaxError"),
        ('{"name":"f","args":{} e', "JsonSyntaxError"),
        ('{"name":"f","args":{}} x', "JsonSyntaxError"),
        ('{"name":"f","args":{"a":1,}}', "JsonSyntaxError"),
        ("{'name':'f'}", "JsonSyntaxError"),
        ('{"name":"f","args":{"a":NaN}}', "JsonSyntaxError"),
        ('{"name":"f","args":{"a":"\n"}}', "JsonSyntaxError"),
        ('{"name":"f","args":{"a":"\\ud800"}}', "JsonSyntaxError"),
        ('{"name":"f","args":{"a":"\\udc00\\ud800"}}', "JsonSyntaxError"),
        ('\ufeff{"name":"f","args":{}}', "JsonSyntaxError"),
        ('{"name":"f","args":{"a":' + "[" * 200 + "]" * 200 + "}}", "JsonSyntaxError"),
        ('{"args":{}}', "ToolSchemaMissingFieldError"),
        ('{"name":"f"}', "ToolSchemaMissingFieldError"),
        ('{"name":"f","args":null}', "ToolSchemaMissingFieldError"),
        ('{"name":"f","args":[1]}', "ToolSchemaWrongTypeError"),
        ('{"name":"f","args":"{}"}', "ToolSchemaWrongTypeError"),
        ('{"name":5,"args":{}}', "ToolSchemaWrongTypeError"),
        ('{"name":"f","name":"f","args":{}}', "ToolSchemaWrongTypeError"),
        ("[]", "ToolSchemaWrongTypeError"),
        ('{"name":"","args":{}}', "ToolSchemaInvalidValueError"),
        ('{"name":"f","args":{},"id":"c"}', "OtherParseError"),
        ('{"name":"f","arguments":{}}', "OtherParseError"),
    ],
)
def test_payloads(payload, kind):
    assert kind_of(CALL + payload + END) == kind


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("<|content_text|>x" + END, None),
        ("<|content_text|>" + END, None),
        ("", None),
        ("words", "EmptyResponseError"),
        ("<|audio_end|>", "EmptyResponseError"),
        ("<|content_model_end_sampling|>", "EmptyResponseError"),
        ("<|content_text|>x", "UnterminatedContentError"),
        ("<|content_text|>x<|content_model_end_sampling|>", "UnterminatedContentError"),
        ("<|content_text|>x" + END + "<|message_model|>", "UnterminatedStructureError"),
        ("<|content_xml|>x" + END, "UnknownContentTypeError"),
        ("<|content_image|>" + END, "UnknownContentTypeError"),
        (ROLE + "g" + CALL + '{"name":"f","args":{}}' + END, "OtherParseError"),
        (ROLE + " f" + CALL + '{"name":"f","args":{}}' + END, "OtherParseError"),
        ("g" + CALL + '{"name":"f","args":{}}' + END, None),
        (ROLE + ROLE + "<|content_text|>x" + END, "UnknownContentTypeError"),
        (ROLE + "x" + END, "UnterminatedContentError"),
        (ROLE + END + ROLE + "<|content_text|>x" + END, "UnknownContentTypeError"),
        ("<|endoftext|><|content_text|>x" + END, None),
        ("<|message_user|>" + CALL + "[]" + END, "ToolSchemaWrongTypeError"),
    ],
)
def test_answers(answer, kind):
    assert kind_of(answer) == kind


NAMES = ["message_model", "content_text", "content_thinking", "content_xml"]
NAMES += ["content_invoke_tool_json", "end_message", "content_model_end_sampling"]
TOKENS = SpecialTokens.from_vocab({f"<|{name}|>": 256 + at for at, name in enumerate(NAMES)})
MODEL, TEXT, THINK, XML, JSON, CLOSE, STOP = range(256, 263)
GOOD = [MODEL, TEXT, *b"a", CLOSE]


def kind_of_ids(ids: list[int], size: int) -> str | None:
    """Ordinary ids are bytes, fed `size` at a time."""
    parser = StreamParser(TOKENS, decode=bytes, strict=True)
    try:
        for at in range(0, len(ids), size):
            parser.feed(ids[at : at + size])
        parser.finish()
    except ParseError as error:
        return error.kind
    return None


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ([*GOOD, STOP], None),
        ([MODEL, TEXT, *"\ufffdé\U0001f680".encode(), CLOSE], None),
        ([MODEL, TEXT, *b"a\x80b", CLOSE], "Utf8ContentError"),
        ([MODEL, TEXT, *b"\xed\xa0\x80", CLOSE], "Utf8ContentError"),
        ([MODEL, TEXT, *b"a\xc3b", CLOSE], "Utf8ContentError"),
        ([MODEL, TEXT, *b"a\xc3", THINK, *b"\xa9", CLOSE], "Utf8ContentError"),
        ([MODEL, TEXT, *b"a\xe2\x82", CLOSE], "InternalStateError"),
        ([MODEL, TEXT, *b"a\x80"], "Utf8ContentError"),
        ([MODEL, TEXT, *b"a\xc3"], "UnterminatedContentError"),
        ([MODEL, *b"a\xc3", TEXT, *b"a", CLOSE], "Utf8ContentError"),
        ([MODEL, *b"a\x80"], "UnterminatedStructureError"),
        ([*GOOD, *b"\x80", *GOOD], None),  # what is dropped may be anything
        ([*b"\xc3", TEXT, *b"a", CLOSE], None),
        ([MODEL, XML, *b"\xc3", CLOSE], "InternalStateError"),
        ([MODEL, JSON, *b"{\x80", CLOSE], "Utf8ContentError"),
        ([MODEL, JSON, *b"{", CLOSE, MODEL, TEXT, *b"\x80", CLOSE], "JsonIncompleteError"),
    ],
)
def test_bytes_have_to_be_utf8(ids, kind, size):
    assert kind_of_ids(ids, size) == kind


@pytest.mark.parametrize("text", ["a\ud800b", "a\udc80", "\ude00\ud83d"])
def test_text_has_to_be_utf8(text):
    assert kind_of(f"<|content_text|>{text}{END}") == "Utf8ContentError"
    assert kind_of(f"{ROLE}{text}<|content_text|>x{END}") == "Utf8ContentError"
    assert parse(f"<|content_text|>{text}{END}").content == text


def test_errors_name_their_field_or_tag():
    with pytest.raises(strict.ToolSchemaMissingFieldError) as missing:
        parse(CALL + '{"name":"f"}' + END, strict=True)
    assert missing.value.field == "args"
    with pytest.raises(strict.UnknownContentTypeError) as unknown:
        parse("<|content_xml|>" + END, strict=True)
    assert unknown.value.tag == "xml"


def test_an_open_string_is_read_as_one_piece():
    """A reader that tries again at each escaped quote takes the text of the string for brackets,
    and quadratic time."""
    cut = CALL + '{"name":"f","args":{"a":"' + '\\"{' * 2000 + END
    assert kind_of(cut) == "JsonIncompleteError"


def test_integers_of_any_length_are_read():
    """Python refuses to convert over 4,300 digits."""
    assert kind_of(CALL + '{"name":"f","args":{"a":' + "9" * 5000 + "}}" + END) is None


def test_inside_a_block_special_tokens_are_literal():
    answer = "<|content_text|>a<|content_thinking|>b<|message_model|>c<|audio_end|>" + END
    assert kind_of(answer) is None
    parsed = parse(answer, strict=True)
    assert parsed.content == "a<|content_thinking|>b<|message_model|>c<|audio_end|>"
    assert parsed.reasoning is None
    assert parse(answer).reasoning == "b"


def test_words_before_a_role_marker_are_dropped():
    answer = "<|content_text|>a" + END + " stray <|message_model|><|content_text|>b" + END
    assert parse(answer, strict=True).content == "ab"
    assert parse(answer).content == "a stray b"
