"""From a settings class to Hydra's typed schema and to the help text, and back to the settings.

Not the settings (`settings.py`, `serving/settings.py`), not the values (`conf/`).
"""

from __future__ import annotations

import dataclasses
import functools
import re
import textwrap
import typing
from typing import Any

SECRETS = frozenset({"api_key"})  # never handed to Hydra, never printed


def structured(settings: type) -> type:
    """A mutable twin of a settings class without its checks, for Hydra to type and fill.

    OmegaConf makes nodes of frozen classes read-only, which no override could then change; the
    checks run once, when the composed values become the real class.
    """
    hints = typing.get_type_hints(settings)
    fields = []
    for field in dataclasses.fields(settings):
        kind = hints[field.name]
        if _is_tuple(kind):
            start: list[Any] = list(field.default)  # type: ignore[arg-type]  # a tuple: see the hint
            made = dataclasses.field(default_factory=functools.partial(list, start))
            fields.append((field.name, list[typing.get_args(kind)[0]], made))
        else:
            fields.append((field.name, kind, dataclasses.field(default=field.default)))
    return dataclasses.make_dataclass(settings.__name__, fields)


def field_names(settings: type) -> list[str]:
    """Names of the settings, in order."""
    return [field.name for field in dataclasses.fields(settings)]


def field_help(settings: type) -> dict[str, str]:
    """Field name -> explanation, from the `name: text` paragraphs of the class docstring, and of
    the settings class that it derives from, if any."""
    names = field_names(settings)
    found: dict[str, str] = {}
    current: list[str] = []
    texts = [kind.__doc__ or "" for kind in reversed(settings.__mro__[:-1])]
    for line in [line for text in texts for line in ["", *textwrap.dedent(text).splitlines()]]:
        head, colon, text = line.strip().partition(":")
        listed = re.split(r",\s*", head)
        if colon and all(name in names for name in listed):
            current = listed
            found.update(dict.fromkeys(listed, text.strip()))
        elif line.strip() and current:
            found.update({name: f"{found[name]} {line.strip()}" for name in current})
        else:
            current = []
    return found


def register(name: str, settings: type) -> None:
    """Puts the schema of a settings class in Hydra's ConfigStore as `schema/<name>`."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(
        group="schema",
        name=name,
        package="_global_",
        node=structured(settings),
        provider="inkling_core",
    )


def settings_from(settings: type, values: dict[str, Any]) -> Any:
    """The settings object from composed plain values; lists become the tuples that the class
    declares."""
    hints = typing.get_type_hints(settings)
    made = {
        name: tuple(value) if _is_tuple(hints[name]) and value is not None else value
        for name, value in values.items()
    }
    return settings(**made)


def _is_tuple(hint: Any) -> bool:
    return typing.get_origin(hint) is tuple


def public_values(settings: Any) -> dict[str, Any]:
    """The settings as plain values, with `***` for each secret that is set."""
    values = dataclasses.asdict(settings)
    shown = {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }
    for name in SECRETS & shown.keys():
        shown[name] = "***" if shown[name] else None
    return shown
