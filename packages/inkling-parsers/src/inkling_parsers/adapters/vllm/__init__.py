"""The vLLM parsers `inkling_py` and `inkling2_py` (0.26 to 0.33): registration, and nothing more.

    vllm serve MODEL --reasoning-parser inkling_py \\
        --enable-auto-tool-choice --tool-call-parser inkling_py

An installed inkling-parsers registers itself through the entry point `vllm.general_plugins`. Where
plugins are off (VLLM_PLUGINS), name the plugin file instead, for one or both flags:

    --reasoning-parser-plugin FILE --tool-parser-plugin FILE        FILE = PLUGIN_FILE below
    (vLLM 0.30 and later also take the module: inkling_parsers.adapters.vllm.inkling_py)

Registering is lazy: no class is built and no grammar loaded before a server asks for the name. The
parsers live in `reasoning` and `tools`, what they share for one answer in `served`.

Inkling 2 speaks the same grammar as far as is published, and its template has not been seen, so its
parsers are subclasses under names of their own, with a switch: INKLING_PARSERS_INKLING2=off leaves
them out, so that a server of Inkling 2 fails at start instead of guessing.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

PLUGIN_FILE = str(Path(__file__).with_name("inkling_py.py"))
INKLING2_SWITCH = "INKLING_PARSERS_INKLING2"
"""`off` leaves the parsers of Inkling 2 unregistered."""

_PACKAGE = __name__
_CLASSES = {
    "inkling_py": ("InklingReasoningParser", "InklingToolParser"),
    "inkling2_py": ("Inkling2ReasoningParser", "Inkling2ToolParser"),
}


def register() -> tuple[str, ...]:
    """Register the parsers with vLLM and return their names; without vLLM, do nothing.

    May be called any number of times, in any of vLLM's processes. Raises ValueError for a switch
    that is neither "on" nor "off".
    """
    if find_spec("vllm") is None:
        return ()
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    names = tuple(name for name in _CLASSES if name != "inkling2_py" or _inkling2_is_on())
    for name in names:
        reasoning, tool = _CLASSES[name]
        ReasoningParserManager.register_lazy_module(name, f"{_PACKAGE}.reasoning", reasoning)
        ToolParserManager.register_lazy_module(name, f"{_PACKAGE}.tools", tool)
    return names


def _inkling2_is_on() -> bool:
    value = os.environ.get(INKLING2_SWITCH, "on").strip().lower()
    if value not in ("on", "off"):
        raise ValueError(f"{INKLING2_SWITCH}={value!r}: the switch is either 'on' or 'off'")
    return value == "on"
