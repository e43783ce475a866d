"""Python imports a module of this name at start; this one installs the emulation in a child.

What it is: found only where `inkling_hpu.emulation.install` has put this folder on PYTHONPATH.
What it is not: a replacement of another `sitecustomize`: the next one on the path runs as well.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent


def _run_the_next_one() -> None:
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    sys.modules.pop("sitecustomize", None)
    with suppress(ModuleNotFoundError):
        __import__("sitecustomize")


_run_the_next_one()
if os.environ.get("INKLING_HPU_EMULATION") == "1":
    from inkling_hpu.emulation import install

    install()
