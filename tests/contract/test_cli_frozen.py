"""The command line is an interface: commands, settings and defaults change on purpose only; those
that inkling-hpu adds among them.

To change it on purpose:  python tests/contract/test_cli_frozen.py  and read the diff of cli.json.
"""

import dataclasses
import json
from pathlib import Path

from inkling_core.cli.commands import ELSEWHERE, composed
from inkling_core.cli.compose import groups

FROZEN = Path(__file__).with_name("cli.json")


def interface() -> dict:
    """Everything that a user can type."""
    commands = {}
    for name, command in composed().items():
        fields = dataclasses.fields(command.settings())
        commands[name] = {
            "settings": {field.name: f"{field.type} = {field.default!r}" for field in fields},
            "groups": groups(command),
            "text": command.text,
        }
    return {"commands": commands, "elsewhere": ELSEWHERE}


def test_the_command_line_is_what_it_was():
    assert interface() == json.loads(FROZEN.read_text()), __doc__


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(interface(), indent=1) + "\n")
