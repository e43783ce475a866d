"""A `config.json` under reading: look-ups that record what is unknown, missing or contradictory.

It knows how to look, not what the keys mean: that is `spellings` and `read`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inkling_core.config import spellings
from inkling_core.config.errors import Problem
from inkling_core.config.validate import is_int
from inkling_core.naming import near_name

_ABSENT = object()


class Document:
    """The document, its `text_config`, and the `problems` found so far."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.top = data
        self.text: Mapping[str, Any] = data["text_config"]
        self.problems: list[Problem] = []

    def problem(self, key: str, value: Any, message: str, remedy: str) -> None:
        """Records a fault."""
        self.problems.append(Problem(key, value, message, remedy))

    def section(self, name: str) -> Mapping[str, Any]:
        """A nested object of the document; empty where it is absent or null."""
        value = self.top.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.problem(name, value, "must be an object", "write {...} or leave it out")
            return {}
        return value

    def check_keys(self) -> None:
        """Records unknown keys, quantised weights and switches that no released model has."""
        sections = {
            "": (self.top, spellings.TOP | spellings.IGNORED),
            "text_config.": (self.text, spellings.text_keys()),
            "mtp_config.": (self.section("mtp_config"), spellings.MTP),
            "vision_config.": (self.section("vision_config"), spellings.VISION | spellings.IGNORED),
            "audio_config.": (self.section("audio_config"), spellings.AUDIO | spellings.IGNORED),
        }
        for prefix, (values, known) in sections.items():
            for key in values:
                if key not in known:
                    self._unknown(prefix, key, values[key], known)
        for prefix, values in (("", self.top), ("text_config.", self.text)):
            self._check_fixed(prefix, values)
        self._check_same()

    def required(self, keys: tuple[str, ...]) -> Any:
        """The value that `keys` of `text_config` agree on; records a fault where none is there."""
        value = self._lookup(keys)
        if value is _ABSENT or value is None:
            self.problem(
                f"text_config.{keys[0]}",
                None,
                "is missing",
                f"set {' or '.join(keys)} (engines disagree on its default)",
            )
            return None
        return value

    def optional(self, keys: tuple[str, ...], default: Any) -> Any:
        """The value that `keys` of `text_config` agree on; `default` where absent or null."""
        value = self._lookup(keys)
        return default if value is _ABSENT or value is None else value

    def ids(self, values: Mapping[str, Any], path: str) -> list[int] | None:
        """The sorted list of ids under the last part of `path`, None where there is none."""
        ids = values.get(path.rpartition(".")[2])
        if ids is None:
            return None
        if not isinstance(ids, (list, tuple)) or not all(is_int(one) for one in ids):
            self.problem(path, ids, "must be a list of integers", "list the ids")
            return None
        return sorted(ids)

    def agree(self, *candidates: tuple[str, Any]) -> Any:
        """The one value given under several names (None = not given); records a contradiction."""
        given = [(key, value) for key, value in candidates if value is not None]
        if not given:
            return None
        key, value = given[0]
        for other, second in given[1:]:
            if second != value:
                self.problem(other, second, f"contradicts {key} = {value!r}", "keep one of the two")
        return value

    def _lookup(self, keys: tuple[str, ...]) -> Any:
        given = [(f"text_config.{key}", self.text[key]) for key in keys if key in self.text]
        if not given:
            return _ABSENT
        return self.agree(*given)

    def _unknown(self, prefix: str, key: str, value: Any, known: frozenset[str]) -> None:
        if key == "quantization_config":
            message, remedy = "quantised weights are not read yet", "use the bf16 release"
        else:
            message, remedy = "is not a known key", "remove it"
            near = near_name(key, known)
            if near is not None:
                remedy = f"did you mean {near!r}?"
        self.problem(prefix + key, value, message, remedy)

    def _check_fixed(self, prefix: str, values: Mapping[str, Any]) -> None:
        for key, allowed in spellings.FIXED.items():
            if key in values and values[key] not in allowed:
                self.problem(
                    prefix + key,
                    values[key],
                    "is an architecture that no released model has",
                    f"only {allowed[0]!r} is computed",
                )

    def _check_same(self) -> None:
        for key, partner in spellings.SAME_AS.items():
            value = self.text.get(key)
            if value is not None and value != self.text.get(partner):
                self.problem(
                    f"text_config.{key}",
                    value,
                    f"differs from {partner} = {self.text.get(partner)!r}",
                    "heads of local and global layers have one count and width",
                )
