"""main.py: finding commands, explaining mistakes, printing what runs, exit status."""

import subprocess
import sys
import textwrap
from importlib.metadata import PackageNotFoundError

import pytest
import yaml

from inkling_core.cli import main as cli
from inkling_core.cli.main import main

MISTAKES = [
    ("serv", "did you mean 'serve'?"),
    ("checkpoint inf", "did you mean 'info'?"),
    ("bench op", "did you mean 'ops'?"),
    ("bench", "which one?"),
    ("benhc ops", "did you mean 'bench'?"),
    ("serve prt=8100", "did you mean 'port'?"),
    ("serve port=abc", "port: Value 'abc'"),
    ("serve port=99999", "port=99999"),
    ("serve model=nanno", "did you mean 'nano'?"),
    ("serve modl=nano", "did you mean 'model'?"),
    ("serve preset=smok", "did you mean 'smoke'?"),
    ("serve dtype=flot32", "did you mean 'float32'?"),
    ("serve log_level=DEBGU", "did you mean 'DEBUG'?"),
    ("serve parsers=non", "did you mean 'none'?"),
    ("serve +foo=1", "no setting 'foo'"),
    ("serve prefix_caching=maybe", "prefix_caching: Value 'maybe'"),
    ("serve model=inkling", "missing checkpoint=..."),
    ("checkpoint info format=jsn", "did you mean 'json'?"),
    ("logits", "missing out=..."),
    ("generate", "missing prompt=..."),
    ("generate max_tokns=5 hi", "did you mean 'max_tokens'?"),
    ("generate max_tokens=0 hi", "max_tokens=0 must be at least 1"),
    ("gates url=localhost:8000", "must start with http://"),
    ("gates timeout=nan", "timeout=nan must be at least 1"),
    ("logits prompts=p out=o checkpoint=nowhere", "no such folder"),
    ("logits prompts=p out=p", "out=p would overwrite the prompts"),
    ("logits prompts=p out=/dev/null/o", "out=/dev/null/o cannot be written: /dev/null is not"),
    ("eval out=/", "out=/ is a folder"),
    ("gates out=/", "out=/ is a folder"),
    ("eval tasks=[[1]]", "must be a flat list of names"),
    ("serve extra_args=[--foo,[1]]", "must be a flat list of words"),
    ("serve --cfg", "--cfg needs one of job, hydra, all"),
    ("serve --cfg jbo", "--cfg needs one of job, hydra, all, not 'jbo'"),
    ("serve --info=nothing", "--info needs one of all, config, defaults"),
    ("serve --package", "--package needs a value"),
    ("serve --config-dir port=1", "--config-dir needs a value"),
]


@pytest.mark.parametrize(("line", "message"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_told_in_one_line(line, message, capsys):
    assert main(line.split()) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert "\ninkling " in "\n" + printed.err


@pytest.mark.parametrize("line", ["buckets", "bench ops format=json"])
def test_a_command_of_an_absent_package_says_what_to_install(line, monkeypatch, capsys):
    monkeypatch.setattr(cli, "from_packages", dict)
    monkeypatch.setattr(cli, "version", absent)
    assert main(line.split()) == 2
    assert "needs inkling-hpu: pip install ./packages/inkling-hpu" in capsys.readouterr().err


def test_gates_say_how_to_get_their_client(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "openai", None)
    assert main(["gates"]) == 1
    assert "needs openai: pip install openai" in capsys.readouterr().err


def test_a_command_of_an_older_package_says_so(monkeypatch, capsys):
    monkeypatch.setattr(cli, "from_packages", dict)
    monkeypatch.setattr(cli, "version", lambda package: "0.0.9")
    assert main(["bench", "ops"]) == 2
    assert "needs a newer inkling-hpu: 0.0.9 is installed" in capsys.readouterr().err


def absent(package):
    raise PackageNotFoundError(package)


def test_no_arguments_print_the_commands_and_fail(capsys):
    assert main([]) == 2
    assert "inkling COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--help", "-h", "help"])
def test_help_lists_ours_and_what_needs_a_package(flag, capsys):
    assert main([flag]) == 0
    page = capsys.readouterr().out
    assert "  serve " in page
    assert "inkling-hpu" in page
    assert "  bench ops " in page


def test_a_help_page_shows_values_as_overridden(capsys):
    assert main(["serve", "preset=smoke", "port=8123", "--help"]) == 0
    page = capsys.readouterr().out
    assert "port=8123" in page
    assert "max_num_seqs=1 " in page
    assert "preset=" in page
    assert "load_test | smoke" in page


def test_cfg_job_prints_the_configuration_and_runs_nothing(capsys):
    assert main(["generate", "12+7=?", "--cfg", "job"]) == 0
    printed = capsys.readouterr()
    assert yaml.safe_load(printed.out)["prompt"] == "12+7=?"
    assert printed.err == ""


@pytest.mark.parametrize("tail", ["--cfg job", "--cfg all --resolve", "--info config", "--help"])
def test_no_flag_prints_a_secret(tail):
    """In a fresh process: `--info` sets up logging of its own."""
    command = [sys.executable, "-m", "inkling_core.cli.main", "serve", "api_key=hunter2"]
    done = subprocess.run([*command, *tail.split()], capture_output=True, text=True, check=True)
    assert "***" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_the_resolved_configuration_is_printed_at_start(capsys):
    """Printed before the command runs, and so also where the run then fails."""
    assert main(["logits", "prompts=nowhere.jsonl", "out=o", "checkpoint=nowhere"]) == 2
    printed = capsys.readouterr().err
    shown = yaml.safe_load(printed[: printed.index("\ninkling logits:")])
    assert shown["prompts"] == "nowhere.jsonl"
    assert shown["dtype"] == "float32"


def test_variables_are_part_of_the_configuration_that_is_printed(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("INKLING_PORT", "9001")
    assert main(["serve", f"checkpoint={tmp_path}/nowhere"]) == 2
    printed = capsys.readouterr().err
    assert yaml.safe_load(printed[: printed.index("\ninkling serve:")])["port"] == 9001


@pytest.mark.parametrize("more", [[], ["--package"], ["--config-dir"], ["--cfg"]], ids=str)
def test_nothing_is_left_behind(tmp_path, monkeypatch, capsys, more):
    """A flag without its value must not swallow the override that keeps Hydra from writing."""
    monkeypatch.chdir(tmp_path)
    main(["logits", "prompts=nowhere.jsonl", "out=o", "checkpoint=nowhere", *more])
    assert not list(tmp_path.iterdir())


FAR_PACKAGE = """\
from dataclasses import dataclass

from inkling_core.cli.commands import Command

ORBIT = Command(
    "far orbit",
    "far_orbit",
    "goes round",
    "inkling_far:Orbit",
    "inkling_far:run",
    ("inkling far orbit",),
    conf="inkling_far.own",
)


@dataclass(frozen=True)
class Orbit:
    '''Settings of `inkling far orbit`.

    turns: how many times.
    model: a plain setting here, a config group of ours elsewhere.
    '''

    turns: int = 1
    model: str = "moon"


def run(settings):
    print("orbit", settings)
    return 4


def main(argv):
    print("far", argv)
    return 3
"""


@pytest.fixture
def far(tmp_path):
    """A package with entry points, as pip would lay it out."""
    package = tmp_path / "inkling_far"
    (package / "conf" / "profile").mkdir(parents=True)
    (package / "__init__.py").write_text(FAR_PACKAGE)
    (package / "conf" / "__init__.py").write_text("")
    (package / "conf" / "profile" / "far.yaml").write_text("# @package _global_\nmax_num_seqs: 7\n")
    (package / "own").mkdir()
    (package / "own" / "__init__.py").write_text("")
    (package / "own" / "far_orbit.yaml").write_text(
        "defaults:\n  - schema/far_orbit\n  - _self_\nturns: 2\n"
    )
    info = tmp_path / "inkling_far-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: inkling-far\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(
        textwrap.dedent("""\
            [inkling.commands]
            observe = inkling_far:main
            far orbit = inkling_far:ORBIT
            [inkling.conf]
            far = inkling_far.conf
        """)
    )
    return tmp_path


def far_runs(far, *lines):
    """Output of command lines in a fresh process, as users meet the package."""
    code = f"""if True:
        import sys
        sys.path.insert(0, {str(far)!r})
        from inkling_core.cli.main import main
        for line in {lines!r}:
            print(main(line.split()))
    """
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_other_packages_add_commands_and_config_groups(far):
    lines = ("observe a b=c", "serve profile=far --cfg job", "serve profile=fra")
    done = far_runs(far, *lines)
    assert "far ['a', 'b=c']\n3\n" in done.stdout
    assert "max_num_seqs: 7\n" in done.stdout
    assert "did you mean 'far'?" in done.stderr


def test_a_command_of_another_package_is_composed_like_ours(far):
    lines = ("far orbit", "far orbit turns=5 model=mars", "far orbit tunrs=5", "far orbt")
    done = far_runs(far, *lines, "far orbit --help")
    assert "orbit Orbit(turns=2, model='moon')\n4\n" in done.stdout
    assert "orbit Orbit(turns=5, model='mars')\n4\n" in done.stdout
    assert "inkling far orbit: no setting 'tunrs'; did you mean 'turns'?" in done.stderr
    assert "did you mean 'orbit'?" in done.stderr
    assert "turns=2" in done.stdout and "  how many times." in done.stdout


def test_added_commands_are_listed_by_name_in_whatever_order_packages_are_found(far):
    listed = far_runs(far, "--help").stdout
    assert 0 < listed.index("  far orbit ") < listed.index("  observe ")


def test_a_typed_default_contradicts_a_variable(monkeypatch, capsys):
    monkeypatch.setenv("INKLING_PORT", "9001")
    assert main(["serve", "port=8000"]) == 2
    assert "port=8000 contradicts INKLING_PORT=9001" in capsys.readouterr().err
