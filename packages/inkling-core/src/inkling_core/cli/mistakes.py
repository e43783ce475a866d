"""Turns what Hydra and OmegaConf raise into one line a user can act on: the value, the limit, the
way out.

Not a check of its own: values are refused by Hydra's types and by the settings classes; this only
explains.
"""

from __future__ import annotations

import re

from inkling_core.cli.schema import field_help, field_names
from inkling_core.naming import near_name, suggestion


class UsageError(Exception):
    """A mistake in how the command was called; its text is the whole message."""


def explain(error: Exception, settings: type, groups: dict[str, list[str]]) -> str:
    """One line for `error`, raised while composing `settings`; `groups`: config groups and their
    options."""
    from hydra.errors import (
        ConfigCompositionException,
        MissingConfigException,
        OverrideParseException,
    )
    from omegaconf.errors import (
        ConfigAttributeError,
        ConfigKeyError,
        InterpolationResolutionError,
        OmegaConfBaseException,
    )

    if isinstance(error, MissingConfigException) and error.options:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        return f"{group}={option}: no such option; {suggestion(option, error.options)}"
    if isinstance(error, OverrideParseException):
        return f"{error.override!r} is not `name=value`: {_first_line(error.message)}"
    cause = _find(error, (OmegaConfBaseException,))
    if isinstance(cause, ConfigKeyError | ConfigAttributeError):
        return unknown_key(str(cause.full_key), settings, groups)
    if isinstance(cause, InterpolationResolutionError):
        return f"missing {cause.full_key}=...: {_first_line(str(cause))}"
    if isinstance(cause, OmegaConfBaseException):
        return f"{cause.full_key}: {_first_line(str(cause))}{_about(settings, cause.full_key)}"
    if isinstance(error, ConfigCompositionException):
        missing = re.search(r"Could not override '([^'.]+)", str(error))
        if missing and missing.group(1) not in field_names(settings):
            return unknown_key(missing.group(1), settings, groups)
    return _first_line(str(error))


def unknown_key(key: str, settings: type, groups: dict[str, list[str]]) -> str:
    """The message for a name that is neither a setting nor a config group."""
    known = [*field_names(settings), *groups]
    return f"no setting {key!r}; {suggestion(key, known)}"


def missing_values(names: list[str], settings: type) -> str:
    """The message for settings that the user has to give and did not."""
    explained = field_help(settings)
    return "missing " + "; ".join(
        f"{name}=... ({explained.get(name, 'required')})" for name in names
    )


def with_near_name(message: str) -> str:
    """Adds the near choice to `name='x' must be one of a, b, c` where the owner left it out."""
    found = re.search(r"='([^']*)' must be one of ([\w, .-]+)$", message)
    match = near_name(found.group(1), found.group(2).split(", ")) if found else None
    return f"{message}; did you mean {match!r}?" if match else message


def _about(settings: type, key: str | None) -> str:
    text = field_help(settings).get(str(key))
    return f" ({text})" if text else ""


def _find(error: BaseException | None, kinds: tuple[type, ...]) -> BaseException | None:
    """The outermost cause of one of `kinds` in the chain of `error` that says which key it is
    about."""
    while error is not None:
        if isinstance(error, kinds) and getattr(error, "full_key", None):
            return error
        error = error.__cause__ or error.__context__
    return None


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else text
