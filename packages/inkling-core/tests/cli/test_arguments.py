"""arguments.py: what is a flag, an override, free text or a secret, and text that survives
Hydra."""

import re

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from inkling_core.cli.arguments import HIDDEN, command_line, quoted, sort_arguments
from inkling_core.cli.commands import BUILT_IN
from inkling_core.cli.compose import settings_for
from inkling_core.cli.mistakes import UsageError

KNOWN = ["prompt", "max_tokens", "checkpoint", "api_key", "model", "port"]


def test_flags_come_before_overrides_whatever_their_order():
    found = sort_arguments(["port=1", "--cfg", "job", "model=nano", "--resolve"], KNOWN, None)
    assert found.flags == ["--cfg", "job", "--resolve"]
    assert found.overrides == ["port=1", "model=nano"]


def test_info_alone_asks_for_all_of_it():
    assert sort_arguments(["--info", "port=1"], KNOWN, None).flags == ["--info", "all"]
    assert sort_arguments(["--info", "defaults"], KNOWN, None).flags == ["--info", "defaults"]


@pytest.mark.parametrize(
    "words",
    [["12+7=?"], ["e=?"], ["x=1, y=2, x+y=?"], ["What", "is", "6?"], ["--", "port=1"], ["7"]],
    ids=" ".join,
)
def test_free_text_is_not_an_override(words):
    found = sort_arguments(words, KNOWN, "prompt")
    text = " ".join(word for word in words if word != "--")
    assert found.overrides == [f"prompt={quoted(text)}"]


@pytest.mark.parametrize(
    "item", ["max_tokens=5", "max_tokns=5", "+extra=1", "~model", "model=nano"]
)
def test_an_override_is_not_free_text(item):
    assert sort_arguments([item], KNOWN, "prompt").overrides == [item]


def test_a_secret_never_reaches_hydra():
    found = sort_arguments(["api_key=hunter2", "port=1"], KNOWN, None)
    assert found.secrets == {"api_key": "hunter2"}
    assert found.overrides == [f"api_key='{HIDDEN}'", "port=1"]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-key", "hunter2", "hunter3", "-q", "awq"], "--api-key '***' '***' -q awq"),
        (["--port=1", "--api_key=hunter2", "x"], "--port=1 '--api_key=***' '***'"),
        (["--hf-tok", "hunter2", "--host", "a b"], "--hf-tok '***' --host 'a b'"),
        (["--max-num-batched-tokens", "9"], "--max-num-batched-tokens 9"),
    ],
)
def test_a_command_line_is_kept_but_for_its_secrets(words, shown):
    assert command_line(words) == shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "80"], "settings are written without dashes: port=VALUE"),
        (["--max-tokens=3"], "settings are written without dashes: max_tokens=VALUE"),
        (["--hlep"], "did you mean --help?"),
        (["-m", "port=1,2"], "not supported"),
        (["prt"], "did you mean port=VALUE?"),
        (["hello"], "is not `name=value`"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_is_none_of_the_four_is_refused(arguments, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        sort_arguments(arguments, KNOWN, None)


def read_back(override: str) -> str:
    """What a command sees: Hydra's grammar, then OmegaConf's interpolations."""
    value = OverridesParser.create().parse_override(override).value()
    return OmegaConf.to_container(OmegaConf.create({"prompt": value}), resolve=True)["prompt"]


@given(st.text(st.sampled_from("ab '\"\\${}[]=,:\n\t~!#é日"), max_size=12) | st.text(max_size=20))
def test_any_text_survives_hydra(text):
    assert read_back(f"prompt={quoted(text)}") == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${x}", r"'\${x}'"),
        (r"\${x}", r"'\\\${x}'"),
        (r"a\\${x}\b", r"'a\\\\\${x}\b'"),
        (r"\'", r"'\\\''"),
        ("ends in \\", r"'ends in \\'"),
    ],
)
def test_backslashes_before_what_is_special_are_doubled(text, value):
    assert quoted(text) == value
    assert read_back(f"prompt={value}") == text


def test_text_arrives_in_the_settings():
    text = "it's ${x} \\"
    arguments = sort_arguments([text], KNOWN, "prompt")
    assert settings_for(BUILT_IN["generate"], arguments).prompt == text
