"""conf/ and the trees of single commands: every option of every group composes with every command
that uses the group."""

import os
from functools import cache
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from inkling_core.cli import compose
from inkling_core.cli.commands import composed
from inkling_core.cli.schema import field_names, settings_from

ROOT = Path(__file__).resolve().parents[2]
CONFS = (
    ROOT / "conf",
    ROOT / "packages" / "inkling-core" / "src" / "inkling_core" / "parity" / "conf",
    ROOT / "packages" / "inkling-core" / "src" / "inkling_core" / "plan" / "conf",
    ROOT / "packages" / "inkling-hpu" / "src" / "inkling_hpu" / "counter" / "conf",
    ROOT / "packages" / "inkling-hpu" / "src" / "inkling_hpu" / "buckets" / "conf",
)
COMMANDS = composed()


@cache
def groups_of(name):
    return compose.groups(COMMANDS[name])


def options():
    for name in COMMANDS:
        for group, found in groups_of(name).items():
            for option in found:
                yield pytest.param(name, group, option, id=f"{name}-{group}-{option}")


@pytest.mark.parametrize(("name", "group", "option"), list(options()))
def test_an_option_composes_to_settings(name, group, option, monkeypatch):
    monkeypatch.setenv("INKLING_CHECKPOINT", "somewhere")
    command = COMMANDS[name]
    config = compose.compose(command, [f"{group}={option}"])
    values = {
        key: "given" if OmegaConf.is_missing(config, key) else config[key]
        for key in field_names(command.settings())
    }
    plain = OmegaConf.to_container(OmegaConf.create(values), resolve=True)
    assert sorted(plain) == sorted(str(key) for key in config)
    settings_from(command.settings(), plain)


def test_every_file_is_reached():
    """No option, and no command's file, that nothing composes."""
    used = {f"{command.config}.yaml" for command in COMMANDS.values()}
    for name in COMMANDS:
        for group, found in groups_of(name).items():
            used |= {os.path.join(group, f"{option}.yaml") for option in found}
    assert {str(path.relative_to(conf)) for conf in CONFS for path in conf.rglob("*.yaml")} == used


def test_every_option_explains_itself():
    for path in [path for conf in CONFS for path in conf.rglob("*.yaml")]:
        lines = path.read_text().splitlines()
        comment = lines[1] if lines[0].startswith("# @package") else lines[0]
        assert comment.startswith("# "), f"{path}: say in a comment what it is for"
