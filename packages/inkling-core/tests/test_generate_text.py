"""generate_text.py: the prompt is what the server renders, the answer is the dense reference's."""

import io
from contextlib import redirect_stderr, redirect_stdout

import pytest

from inkling_core.checkpoint import load_decoder
from inkling_core.cli.settings import CheckpointTinySettings, GenerateSettings
from inkling_core.generate import TokenGenerator
from inkling_core.generate_text import Text, effort_of, run
from inkling_core.weights import tiny
from inkling_parsers.parser import parse
from inkling_parsers.render import render

QUESTION = "12+7=? <|end_message|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "checkpoint"
    with redirect_stdout(io.StringIO()):
        tiny.run(CheckpointTinySettings(str(path), seed=3, dtype="float32"))
    return path


def test_the_prompt_is_the_rendered_one_and_spelled_markers_stay_text(folder):
    text = Text.from_checkpoint(folder)
    ids = text.prompt(QUESTION, "low")
    whole = render([{"role": "user", "content": QUESTION}], effort=0.2)
    assert text.tokenizer.decode(ids, skip_special_tokens=False) == whole.text
    specials = sum(kind == "s" for kind, _ in whole.segments)
    assert sum(token in text.special.markers for token in ids) == specials


def test_the_answer_is_the_dense_references(folder):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        run(GenerateSettings(QUESTION, str(folder), "float32", max_tokens=9, ignore_stop=True))
    text = Text.from_checkpoint(folder)
    prompt = text.prompt(QUESTION, "high")
    generator = TokenGenerator(load_decoder(folder), len(prompt) + 9)
    answer = parse(
        list(generator.generate(prompt, 9)), text.special, decode=text._decode, prompt=prompt
    )
    calls = "".join(f"{call.name}({call.arguments})\n" for call in answer.tool_calls)
    assert out.getvalue() == f"{answer.content or ''}{calls}\n"
    assert (answer.reasoning or "") in err.getvalue()


def test_effort_words_and_numbers():
    assert [effort_of(word) for word in (None, "low", "0.5", "0")] == [None, "low", 0.5, 0.0]


def test_a_folder_without_tokenizer_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        Text.from_checkpoint(tmp_path)


def test_more_than_the_context_is_refused_with_both_numbers(folder):
    settings = GenerateSettings("hi", str(folder), max_tokens=99_999_999)
    with pytest.raises(ValueError, match=r"max_tokens=99999999 are asked .* context is 4096"):
        run(settings)
