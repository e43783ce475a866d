"""Every command a developer needs: `nox -l` lists them, `nox` runs the quick ones, `nox -t ci` what
CI runs.

Not the place of the checks themselves (tests live beside what they test). Two kinds of environment:
small ones that nox makes per session, and the two large ones (`serve`: torch + vLLM, `ref`: torch +
transformers) that `bootstrap.py` makes once and several sessions share.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nox
import tomllib

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))  # nox runs this file by path; bootstrap.py lies beside it
import bootstrap  # noqa: E402 - needs the line above

nox.needs_version = ">=2025.5"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests", "contract"]

PACKAGES = ("parsers", "core", "hpu", "cuda-ref")
SOURCES = os.pathsep.join(str(ROOT / "packages" / f"inkling-{name}" / "src") for name in PACKAGES)
CORE_TESTS = "packages/inkling-core/tests"
SERVER_TESTS = f"{CORE_TESTS}/serving"
PARSER_TESTS = "packages/inkling-parsers/tests"
WALKS = f"{PARSER_TESTS}/test_structural_tag_walks.py"
BESIDE = (
    "config",
    "nano_transformers",
    "weights_experts",
    "weights_tiny",
)  # core tests beside transformers
# Tests that need more than the package alone; each has a session of its own below.
ELSEWHERE = (SERVER_TESTS, f"{PARSER_TESTS}/adapters", f"{PARSER_TESTS}/oracle", WALKS)
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # pytest-xdist runs a process per core


# ---- quick ones: no argument needed, run them before every commit ------------------------------


@nox.session(tags=["ci"])
def lint(session: nox.Session) -> None:
    """Style, spelling and layers: ruff, ruff format, codespell, import-linter."""
    session.install("ruff", "codespell", "import-linter")
    session.run("ruff", "check", "--output-format", "concise", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell")
    session.run("lint-imports", env={"PYTHONPATH": SOURCES})


@nox.session(tags=["ci"])
def types(session: nox.Session) -> None:
    """Types: pyright over all packages, against the real torch and vLLM."""
    session.install("pyright[nodejs]")
    session.run("pyright", "--pythonpath", str(bootstrap.environment("serve")), *session.posargs)


@nox.session(tags=["ci"])
@nox.parametrize("package", PACKAGES, ids=PACKAGES)
def tests(session: nox.Session, package: str) -> None:
    """Unit tests of one package, installed alone from its wheel."""
    build_wheels()
    name, folder = f"inkling-{package}", Path("packages") / f"inkling-{package}" / "tests"
    ours = ["--no-index", "--find-links", "dist", "--force-reinstall", "--no-deps"]
    if not any(folder.glob("**/test_*.py")):  # metadata only so far: it has to install and import
        session.install(*ours, name)
    else:
        session.install(*bootstrap.TESTING, *third_party(package))
        session.install(*ours, name, *siblings(package))
        session.run("python", "-m", "pip", "check")
        skipped = [f"--ignore={path}" for path in ELSEWHERE]
        pytest(session, f"tests-{package}", str(folder), *skipped, "-n", "2", *session.posargs)
    session.run("python", "-c", f"import {name.replace('-', '_')}")


@nox.session(tags=["ci"], venv_backend="none")
def contract(session: nox.Session) -> None:
    """Across packages: mirrored names, imports, API, command line, conf/, documents."""
    shared(session, "serve", "contract", "tests/contract", "-n", "2")


@nox.session(tags=["ci"])
def docs(session: nox.Session) -> None:
    """The documentation site into build/site: links, anchors, menus; nothing from the network."""
    session.install("mkdocs-material>=9.8,<10")  # mkdocs.yml says why this one, and what is next
    session.run("mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})  # an advert
    session.run("python", "tests/site_offline.py", "build/site")


@nox.session(tags=["ci"], venv_backend="none")
def deploy(session: nox.Session) -> None:
    """deploy/: install.sh twice and undone, the board's queries, the compose file."""
    build_wheels()
    session.env["INKLING_WHEELS"] = "dist"
    shared(session, "serve", "deploy", "tests/deploy")


# ---- heavy ones: minutes each ------------------------------------------------------------------


@nox.session(tags=["ci"], default=False, venv_backend="none")
def parity(session: nox.Session) -> None:
    """The decoder against HF transformers: fp32 logits, bf16 layer by layer, tensor parallel."""
    with_transformers = [f"{CORE_TESTS}/test_{name}.py" for name in BESIDE]
    shared(session, "ref", "parity", "tests/parity", *with_transformers, "-n", "2")


@nox.session(tags=["ci"], default=False, venv_backend="none")
def serve(session: nox.Session) -> None:
    """The real server on a CPU: API, refusals, load against the dense reference."""
    shared(session, "serve", "serve", SERVER_TESTS)


@nox.session(tags=["ci"], default=False, venv_backend="none")
def mutations(session: nox.Session) -> None:
    """Breaks shipped code, one edit at a time; a test has to fail (`-- --every 1`: all of them)."""
    python = str(bootstrap.environment("serve"))  # the one that has vLLM, which some of them need
    options = session.posargs or ["--every", "2"]
    session.run(python, "tests/mutations/run.py", *options, external=True, env=ONE_THREAD)


@nox.session(tags=["ci"], default=False, venv_backend="none")
def structural(session: nox.Session) -> None:
    """Parsers inside vLLM 0.32.0: adapters, and structural tags walked under xgrammar's masks."""
    shared(session, "serve", "structural", f"{PARSER_TESTS}/adapters", WALKS, "-n", "2")


@nox.session(tags=["ci"], default=False, venv_backend="none")
def parity_bundles(session: nox.Session) -> None:
    """The CPU's and the Gaudi's ops against the shipped bundle, and against the Triton ops'."""
    python, reports = str(bootstrap.environment("serve")), bootstrap.REPORTS
    command = [python, "-m", "inkling_core.cli.main", "parity"]
    triton = Path(session.create_tmp()) / "triton"
    interpreted = {**ONE_THREAD, "TRITON_INTERPRET": "1"}  # a GPU's answers come from a GPU machine
    dump = [*command, "dump", "backend=cuda_ref", "device=cpu", f"out={triton}"]
    session.run(*dump, external=True, env=interpreted)
    found = []
    for source, bundle in (("float64", f"{CORE_TESTS}/data/parity_small"), ("triton", triton)):
        for name in ("cpu", "hpu"):
            found.append(f"{reports}/parity-{source}-{name}.json")
            arguments = [f"backend={name}", f"bundle={bundle}", f"out={found[-1]}"]
            session.run(*command, "check", *arguments, external=True, env=ONE_THREAD)
    results = f"results=[{','.join(found)}]"
    session.run(*command, "report", results, f"out={reports}/parity", external=True)


@nox.session(default=False)
def cuda_ref_parity(session: nox.Session) -> None:
    """Every size of the Triton ops' parity tests in the interpreter (CI takes a sample)."""
    session.install(*bootstrap.TESTING, *third_party("cuda-ref"))
    session.env["PYTHONPATH"] = SOURCES
    session.env["INKLING_CUDA_REF_SIZES"] = "all"
    folder = "packages/inkling-cuda-ref/tests"
    pytest(session, "cuda-ref-parity", folder, "-n", "2", *session.posargs)


@nox.session(default=False, venv_backend="none")
def adapters(session: nox.Session) -> None:
    """The vLLM adapters under 0.26.0, 0.30.0, 0.32.0 and 0.33.0."""
    script = f"{PARSER_TESTS}/adapters/environments.py"
    python = str(bootstrap.environment("serve"))
    session.run(python, script, "--root", ".nox/adapters", "--python", python, external=True)


@nox.session(default=False, venv_backend="none")
def hpu(session: nox.Session) -> None:
    """vllm-gaudi's own runner on an emulated Gaudi: stock models, Inkling, negative controls.

    INKLING_HPU_PYTHON names the interpreter that has vLLM and vllm_gaudi (default: this one);
    INKLING_VLLM_GAUDI a source tree of vllm-gaudi that is not installed.
    """
    python = os.environ.get("INKLING_HPU_PYTHON", sys.executable)
    asked = [python, "tests/hpu/run.py", "--check"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    if answer.returncode:
        session.skip(f"tests/hpu, all of it. {answer.stderr.strip()}")
    arguments = report("hpu", "tests/hpu", *session.posargs)[2:]
    session.run(python, "tests/hpu/run.py", *arguments, external=True, env=ONE_THREAD)


@nox.session(default=False, venv_backend="none")
def oracle(session: nox.Session) -> None:
    """The parsers against the model owner's tml-renderers 0.2.1."""
    shared(session, "oracle", "oracle", f"{PARSER_TESTS}/oracle", "-n", "2")


@nox.session(default=False)
@nox.parametrize("version", PYTHONS, ids=PYTHONS)
def pythons(session: nox.Session, version: str) -> None:
    """The parser package alone under each Python it promises."""
    interpreter = find_python(version)
    if interpreter is None:
        session.skip(f"no Python {version} on this machine")
    build_wheels()
    folder = Path(session.create_tmp()) / f"venv-{version}"
    session.run(str(interpreter), "-m", "venv", "--clear", str(folder), external=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q"]
    session.run(*install, "--no-index", "--find-links", "dist", "inkling-parsers", external=True)
    session.run(*install, *bootstrap.TESTING, external=True)
    skipped = [f"--ignore={path}" for path in ELSEWHERE]
    command = report(f"pythons-{version}", PARSER_TESTS, "-n", "2", *skipped)
    session.run(python, *command, *session.posargs, external=True)


@nox.session(default=False, venv_backend="none")
def install(session: nox.Session) -> None:
    """install.sh as in `deploy`, in an environment with a real torch, so that the doctor ends
    whole."""
    build_wheels()
    session.env.update({"INKLING_WHEELS": "dist", "INKLING_IMAGE_TORCH": bootstrap.TORCH})
    shared(session, "serve", "install", "tests/deploy/test_install.py")


@nox.session(default=False)
def board(session: nox.Session) -> None:
    """The board's queries over a real server and a real Prometheus; a picture of them."""
    session.install("matplotlib")
    options = ["--python", str(bootstrap.environment("serve"))]
    out = str(bootstrap.REPORTS / "board")
    session.run("python", "tests/deploy/board.py", "--out", out, *options, *session.posargs)


@nox.session(default=False, venv_backend="none")
def bench(session: nox.Session) -> None:
    """Speed, printed only where the parity of the same thing is green in the same run."""
    python = str(bootstrap.environment("serve"))
    beside, owner = (str(bootstrap.environment(name)) for name in ("ref", "oracle"))
    throughput = "benchmarks/serving_throughput.py"
    session.run(python, throughput, "--transformers-python", beside, external=True)
    session.run(python, "benchmarks/long_prefill.py", external=True)
    session.run(python, "benchmarks/parsers.py", "--tml-python", owner, external=True)


@nox.session(default=False, venv_backend="none")
def heldout(session: nox.Session) -> None:
    """inkling-nano in full: 300 served answers a task held to the reference, `inkling eval`."""
    served = f"{SERVER_TESTS}/test_serving_nano.py"
    python = str(bootstrap.environment("serve"))
    command = report("heldout", served, "-k", "held_out")
    session.run(python, *command, external=True, env={**ONE_THREAD, "INKLING_HELDOUT_CASES": "300"})
    command = [python, "-m", "inkling_core.cli.main", "eval", *session.posargs]
    session.run(*command, external=True)


@nox.session(default=False, venv_backend="none")
def long_tier(session: nox.Session) -> None:
    """The long tier of the gates in full, on inkling-nano and a CPU (CI takes three gates)."""
    command = report("long-tier", f"{SERVER_TESTS}/test_serving_nano.py", "-k", "long_tier")
    python = str(bootstrap.environment("serve"))
    session.run(python, *command, external=True, env={**ONE_THREAD, "INKLING_LONG_TIER": "all"})


@nox.session(default=False, venv_backend="none")
def long_positions(session: nox.Session) -> None:
    """Prompts of 200,000 to 262,120 tokens to a two-layer model on a CPU (CI: to 8,168)."""
    command = report("long-positions", f"{SERVER_TESTS}/test_serving_long_positions.py", "-s")
    python = str(bootstrap.environment("serve"))
    session.run(python, *command, external=True, env={"INKLING_LONG_POSITIONS": "262144"})


@nox.session(default=False)
def wheels(session: nox.Session) -> None:
    """All four wheels and source archives into dist/, their metadata checked."""
    build_wheels()
    session.install("twine", "check-wheel-contents")
    session.run("twine", "check", "--strict", *map(str, Path("dist").iterdir()))
    session.run("check-wheel-contents", "dist")


# ---- how they are made -------------------------------------------------------------------------


def pytest(session: nox.Session, name: str, *arguments: str) -> None:
    """Runs pytest in the session's own environment; leaves a report for the closing table."""
    session.run("python", *report(name, *arguments), env=ONE_THREAD)


def shared(session: nox.Session, environment: str, name: str, *arguments: str) -> None:
    """Runs pytest in one of the large environments."""
    python = str(bootstrap.environment(environment))
    command = report(name, *arguments, *session.posargs)
    session.run(python, *command, external=True, env=ONE_THREAD)


def report(name: str, *arguments: str) -> list[str]:
    """`-m pytest ...` with a JUnit report that `bootstrap.py test` adds up."""
    return ["-m", "pytest", f"--junitxml={bootstrap.REPORTS / name}.xml", *arguments]


@functools.cache
def build_wheels() -> None:
    """Our distributions into dist/, wheel and source archive, once per run of nox."""
    shutil.rmtree("dist", ignore_errors=True)
    python = bootstrap.environment("dev")
    for package in PACKAGES:
        folder = f"packages/inkling-{package}"
        command = [str(python), "-m", "build", "-q", "--no-isolation", "-o", "dist", folder]
        subprocess.run(command, check=True)


def siblings(package: str) -> list[str]:
    """Distribution names of our own that a package needs, those of its siblings among them."""
    direct = [item.split("==")[0] for item in dependencies(package) if item.startswith("inkling-")]
    further = [name for item in direct for name in siblings(item.removeprefix("inkling-"))]
    return list(dict.fromkeys([*direct, *further]))


def third_party(package: str) -> list[str]:
    """What a package and its siblings need from the index; torch in the version all is tested
    with."""
    wanted = list(dependencies(package))
    for name in siblings(package):
        wanted += dependencies(name.removeprefix("inkling-"))
    wanted = [item for item in wanted if not item.startswith("inkling-")]
    pinned = [bootstrap.TORCH if item.startswith("torch>") else item for item in wanted]
    extra = (
        bootstrap.torch_index([sys.executable, "-m", "pip"]) if bootstrap.TORCH in pinned else []
    )
    return [*pinned, *extra]


def dependencies(package: str) -> list[str]:
    """The requirements that a package declares."""
    project = tomllib.loads(Path(f"packages/inkling-{package}/pyproject.toml").read_text())
    return project["project"]["dependencies"]


def find_python(version: str) -> Path | None:
    """An interpreter of that minor version: on the path, or among pyenv's."""
    return next(_candidates(version), None)


def _candidates(version: str) -> Iterator[Path]:
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(home.glob(f"versions/{version}.*/bin/python{version}"))
    found = shutil.which(f"python{version}")
    if found and "shims" not in found:  # a pyenv shim stands for versions that may not be active
        yield Path(found)
