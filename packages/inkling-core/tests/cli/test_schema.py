"""schema.py: settings classes to Hydra's types and to help, and back."""

from dataclasses import dataclass, fields

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import ReadonlyConfigError, ValidationError

from inkling_core.cli.commands import BUILT_IN
from inkling_core.cli.schema import (
    SECRETS,
    field_help,
    field_names,
    public_values,
    settings_from,
    structured,
)

COMMANDS = sorted(BUILT_IN)


@dataclass(frozen=True)
class Settings:
    """Settings of a test.

    first, second: told once
    over two lines.
    api_key: a secret.

    Not: a field at all.
    """

    first: int = 1
    second: tuple[str, ...] = ("a",)
    api_key: str | None = None


def test_help_is_read_from_the_docstring():
    told = "told once over two lines."
    assert field_help(Settings) == {"first": told, "second": told, "api_key": "a secret."}


def test_frozen_settings_can_be_overridden_and_stay_typed():
    config = OmegaConf.structured(structured(Settings))
    config.first = 2
    config.second = ["b", "c"]
    with pytest.raises(ValidationError):
        config.first = "x"
    assert settings_from(Settings, OmegaConf.to_container(config)) == Settings(2, ("b", "c"))
    with pytest.raises(ReadonlyConfigError):  # what `structured` is for
        OmegaConf.structured(Settings).first = 2


def test_secrets_are_hidden():
    assert public_values(Settings(api_key="x"))["api_key"] == "***"
    assert public_values(Settings())["api_key"] is None


@pytest.mark.parametrize("name", COMMANDS)
def test_every_setting_is_explained(name):
    cls = BUILT_IN[name].settings()
    assert sorted(field_help(cls)) == sorted(field_names(cls))


@pytest.mark.parametrize("name", COMMANDS)
def test_what_looks_secret_is_secret(name):
    words = ("key", "password", "secret")
    suspects = {f.name for f in fields(BUILT_IN[name].settings()) if f.name.endswith(words)}
    assert suspects <= SECRETS
