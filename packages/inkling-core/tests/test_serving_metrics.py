"""The folder that carries metrics between processes: there while a server runs, ours or the
operator's."""

from pathlib import Path

import pytest

from inkling_core.serving.metrics import FOLDER, set_gauge, shared_folder


def test_a_folder_for_as_long_as_the_server_runs():
    environ: dict[str, str] = {}
    with pytest.raises(RuntimeError), shared_folder(environ):
        folder = Path(environ[FOLDER])
        assert folder.is_dir() and not list(folder.iterdir())
        raise RuntimeError
    assert environ == {} and not folder.exists()


def test_the_operators_folder_stays(tmp_path):
    (tmp_path / "values.db").touch()
    environ = {FOLDER: str(tmp_path)}
    with shared_folder(environ):
        assert environ == {FOLDER: str(tmp_path)}
    assert (tmp_path / "values.db").exists() and environ == {FOLDER: str(tmp_path)}


def test_only_known_gauges():
    pytest.importorskip("prometheus_client", reason="vLLM brings it")
    with pytest.raises(KeyError, match="conv_row"):
        set_gauge("inkling:conv_row", 1)
