"""strict=True: the model owner's rules, and its kinds of error."""

from __future__ import annotations

import pytest

from inkling_parsers import ParseError, parse, strict

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


def test_errors_name_their_field_or_tag():
    with pytest.raises(strict.ToolSchemaMissingFieldError) as missing:
        parse(CALL + '{"name":"f"}' + END, strict=True)
    assert missing.value.field == "args"
    with pytest.raises(strict.UnknownContentTypeError) as unknown:
        parse("<|content_xml|>" + END, strict=True)
    assert unknown.value.tag == "xml"


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
