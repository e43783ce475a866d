"""How the parsers get into vLLM: entry point, plugin file, module name; and how they stay out."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points

import pytest

import inkling_parsers.adapters.vllm as adapter

NAMES = ("inkling_py", "inkling2_py")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch, tokenizer) -> Callable[[], list[str]]:
    """Forget our parsers for this test; returns which names both managers know."""
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    tables = [
        (ReasoningParserManager, "reasoning_parsers"),
        (ReasoningParserManager, "lazy_parsers"),
        (ToolParserManager, "tool_parsers"),
        (ToolParserManager, "lazy_parsers"),
    ]
    for manager, table in tables:
        kept = {k: v for k, v in getattr(manager, table).items() if k not in NAMES}
        monkeypatch.setattr(manager, table, kept)
    monkeypatch.delitem(sys.modules, "inkling_py", raising=False)
    monkeypatch.delitem(sys.modules, f"{adapter.__name__}.inkling_py", raising=False)

    def names() -> list[str]:
        both = (ReasoningParserManager.list_registered(), ToolParserManager.list_registered())
        return [name for name in NAMES if all(name in known for known in both)]

    assert names() == []
    return names


def test_the_entry_point_registers_in_every_process(registered, monkeypatch):
    plugins = importlib.import_module("vllm.plugins")
    monkeypatch.setenv("VLLM_PLUGINS", "inkling_parsers")
    for _ in range(2):  # vLLM may load plugins more than once
        monkeypatch.setattr(plugins, "plugins_loaded", False)
        plugins.load_general_plugins()
        assert registered() == list(NAMES)
    group = entry_points(group="vllm.general_plugins")
    (entry,) = [entry for entry in group if entry.name == "inkling_parsers"]
    assert entry.value == "inkling_parsers.adapters.vllm:register"


@pytest.mark.parametrize("kind", ["reasoning", "tool"])
@pytest.mark.parametrize("by", ["file", "module"])
def test_a_plugin_flag_registers_both_parsers(registered, vllm_version, kind, by):
    """What --reasoning-parser-plugin and --tool-parser-plugin call."""
    if by == "module" and vllm_version.startswith("0.26"):
        pytest.skip("vLLM 0.26 takes a plugin by its file only")
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    load = {
        "reasoning": ReasoningParserManager.import_reasoning_parser,
        "tool": ToolParserManager.import_tool_parser,
    }[kind]
    load(adapter.PLUGIN_FILE if by == "file" else f"{adapter.__name__}.inkling_py")
    assert registered() == list(NAMES)


def test_registering_loads_no_parser(vllm_version):
    """In a process of its own, since this one has loaded them."""
    code = (
        "import sys; from inkling_parsers.adapters.vllm import register; register(); "
        "print(sorted(m for m in sys.modules if m.startswith('inkling_parsers.adapters')))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "VLLM_PLUGINS": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    expected = ["inkling_parsers.adapters", "inkling_parsers.adapters.vllm"]
    assert done.stdout.strip().splitlines()[-1] == str(expected)


def test_inkling2_has_its_own_switch(registered, monkeypatch):
    monkeypatch.setenv("INKLING_PARSERS_INKLING2", "off")
    assert adapter.register() == ("inkling_py",)
    assert registered() == ["inkling_py"]
    monkeypatch.setenv("INKLING_PARSERS_INKLING2", "maybe")
    with pytest.raises(ValueError, match="INKLING_PARSERS_INKLING2='maybe'"):
        adapter.register()


def test_inkling2_parses_as_inkling(serve, tokenizer, encode):
    server = serve("inkling2_py", "inkling2_py")
    segments = [("s", "<|content_text|>"), ("t", "hi"), ("s", "<|end_message|>")]
    answer = server.stream(server.request(), [encode(tokenizer, segments)])
    assert answer.plain() == ("", "hi", [])


def test_a_tokenizer_without_the_markers_is_refused(serve, tokenizer):
    class Other:
        def get_vocab(self):
            return {"hello": 0}

    with pytest.raises(ValueError, match=re.escape("lacks the special tokens <|message_model|>")):
        serve().parser_cls(Other())


def test_somebody_elses_tool_parser_is_left_to_vllm(serve):
    """Half a composition is not taken over: its other half has a format of its own."""
    mixed = serve("inkling_py", "hermes").parser_cls
    assert mixed.parse_delta.__module__.startswith("vllm.")
    ours = serve().parser_cls
    assert ours.parse_delta.__module__ == "inkling_parsers.adapters.vllm.served"
