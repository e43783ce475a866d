"""What other code may import: public names of the two packages that others build on, and their
signatures.

To change it on purpose:  python tests/contract/test_public_api.py  and read the diff of api.json.
"""

import importlib
import inspect
import json
from pathlib import Path

FROZEN = Path(__file__).with_name("api.json")
MODULES = (
    "inkling_parsers",
    "inkling_core.ops",
    "inkling_core.conv_state",
    "inkling_core.config",
    "inkling_core.step",
    "inkling_core.backend",
    "inkling_core.model",
    "inkling_core.generate",
)


def interface() -> dict[str, dict[str, str]]:
    """Module -> public name -> how it is called."""
    return {name: dict(sorted(_public(name).items())) for name in MODULES}


def _public(name: str) -> dict[str, str]:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", None) or [
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", None) == name
    ]
    return {key: _shape(getattr(module, key)) for key in names}


def _shape(value: object) -> str:
    if inspect.isfunction(value):
        return f"def {inspect.signature(value)}"
    if inspect.isclass(value):
        methods = [key for key, member in vars(value).items() if _is_public(key, member)]
        return f"class: {' '.join(sorted(methods))}"
    return type(value).__name__


def _is_public(key: str, member: object) -> bool:
    kinds = (staticmethod, classmethod, property)
    return not key.startswith("_") and (inspect.isfunction(member) or isinstance(member, kinds))


def test_the_public_api_is_what_it_was():
    assert interface() == json.loads(FROZEN.read_text()), __doc__


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(interface(), indent=1) + "\n")
