"""Lets the parity tests import their oracle by name, under pytest's importlib mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
CORE_TESTS = Path(__file__).resolve().parents[2] / "packages" / "inkling-core" / "tests"
sys.path.insert(0, str(CORE_TESTS))  # last_rows
