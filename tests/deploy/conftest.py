"""Lets the tests of deploy/ import their neighbours, the doctor's machines and the installer, by
name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contract"))  # machines.py
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy" / "gaudi"))  # installed.py
