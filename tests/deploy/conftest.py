"""Lets the tests of deploy/ import their neighbours, and the doctor's machines, by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contract"))  # machines.py
