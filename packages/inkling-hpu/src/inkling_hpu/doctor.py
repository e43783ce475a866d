"""What `inkling doctor` examines on a Gaudi, as the entry point `inkling.doctor: gaudi`.

    device     hl-smi, device nodes, the kernel module; Debian's record of the host's packages
    versions   vllm_gaudi, vLLM, the bridge and torch against support.toml; every name that the
               adapter uses, in vllm_gaudi's source
    settings   the refusals of this package (`refusals.py`), all at once
    memory     weights and pool per card, by arithmetic

What it is not: a parser of hl-smi or of any other tool of which no output is at hand. Such a tool
is found, or it is not. On the emulated device nothing of the driver or the bridge is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from inkling_core.doctor.checkpoint import config_of
from inkling_core.doctor.examination import PLUGINS, Examination
from inkling_core.doctor.findings import NOT_FOUND, Finding, refused
from inkling_core.doctor.fit import GIB, settings
from inkling_core.doctor.matrix import compare, read_matrix
from inkling_core.doctor.subject import Machine, Subject

if TYPE_CHECKING:
    from inkling_core.config import InklingConfig
    from inkling_hpu.plan.card import CardMemory
    from inkling_hpu.refusals import Deployment

BRIDGE = "habana-torch-plugin"
RUNTIME = "run the container with --runtime=habana -e HABANA_VISIBLE_DEVICES=all"
DRIVER = f"install the Gaudi driver on the host; in a container, {RUNTIME}"


def present(machine: Machine) -> bool:
    """Whether anything of a Gaudi is here."""
    return bool(
        machine.version(BRIDGE) or machine.program("hl-smi") or _module(machine) or nodes(machine)
    )


def device(subject: Subject) -> Iterator[Finding]:
    """Driver, tools and cards. Firmware: Debian's record of its package, where there is one."""
    if _emulated(subject):
        yield Finding("device", "driver and cards", "not examined", "the device is emulated")
        return
    machine, ranks = subject.machine, subject.settings.tensor_parallel
    cards = nodes(machine)
    traces = {"kernel module": _module(machine), "hl-smi": machine.program("hl-smi")}
    # One that is absent beside another may lie elsewhere; with no trace at all there is no card.
    state = "warning" if cards or any(traces.values()) else "fault"
    for what, place in traces.items():
        if place is None:
            yield Finding("device", what, state, NOT_FOUND, DRIVER)
        else:
            yield Finding("device", what, "ok", place)
    found = f"{len(cards)} device node(s) in /dev/accel, {ranks} rank(s) asked for"
    if len(cards) < ranks:
        yield Finding("device", "cards", state, found, f"{RUNTIME}, or lower the ranks")
    else:
        yield Finding("device", "cards", "ok", found)
    yield from _packages(machine)


def versions(subject: Subject) -> Iterator[Finding]:
    """The matrix, then the names that the adapter uses in vllm_gaudi's source."""
    for finding in compare(read_matrix("inkling_hpu"), subject.machine):
        bridge = finding.what == BRIDGE and finding.found == NOT_FOUND
        if not (bridge and _emulated(subject)):
            yield finding
    if "inkling_hpu" not in subject.machine.entry_points(PLUGINS):
        remedy = "pip install --no-deps packages/inkling-hpu: vLLM finds it by its entry point"
        yield Finding("versions", "inkling-hpu", "fault", "no plug-in of vLLM's", remedy)
    yield from _names(subject)


def conflicts(subject: Subject) -> Iterator[Finding]:
    """Every reason of `refusals.reasons`, from settings, vLLM's arguments and variables."""
    config = config_of(subject)
    if config is None or _emulated(subject):  # its pool is `kv_cache_mib`, as on a CPU
        yield from settings(subject)
    if config is None:
        return
    from inkling_hpu.refusals import reasons

    found = reasons(config, _deployment(subject, config))
    for reason in found:
        yield refused("settings", "inkling-hpu", reason)
    if not found:
        yield Finding("settings", "inkling-hpu", "ok", "nothing conflicts")
    lazy = subject.machine.environ.get("PT_HPU_LAZY_MODE")
    if lazy != "1" and not _emulated(subject):
        told = f"PT_HPU_LAZY_MODE={lazy or '(unset, which is 0)'}: only lazy mode has run"
        yield Finding("settings", "lazy mode", "warning", told, "set PT_HPU_LAZY_MODE=1")


def memory(subject: Subject) -> Iterator[Finding]:
    """Weights and pool of a card against its memory; activations come on top."""
    from inkling_core.weights.info import checkpoint_info

    config, ranks = config_of(subject), subject.settings.tensor_parallel
    weights = {} if config is None else checkpoint_info(config).card_bytes
    if _emulated(subject) or config is None or ranks not in weights:
        yield Finding("memory", "card", "not examined", "no card, checkpoint or usable rank count")
        return
    asked = _deployment(subject, config)
    try:
        card, name = _card(subject, asked, config, weights[ranks])
    except ValueError as error:  # a variable that is no number
        yield refused("memory", "variables", str(error))
        return
    if card.left <= 0:
        found = f"{weights[ranks] / GIB:.1f} GiB of weights per card"
        yield Finding("memory", name, "fault", found, "raise --tensor-parallel-size")
        return
    yield _pool(asked, name, card)


def nodes(machine: Machine) -> list[str]:
    """Device nodes of the kernel's accelerator class, one per card."""
    folder = machine.root / "dev" / "accel"
    return sorted(path.name for path in folder.glob("accel*") if path.name[5:].isdigit())


GAUDI = Examination(present, (device, versions, memory, conflicts))


def _emulated(subject: Subject) -> bool:
    return subject.settings.backend == "hpu_emulated"


def _module(machine: Machine) -> str | None:
    folder = machine.root / "sys" / "module" / "habanalabs"
    return str(folder) if folder.is_dir() else None


def _packages(machine: Machine) -> Iterator[Finding]:
    """Gaudi packages that Debian's package manager knows, held to the bridge's software version."""
    bridge = machine.version(BRIDGE)
    listed = dict(_debian(machine.text("var/lib/dpkg/status") or ""))
    firmware = any("firmware" in name for name in listed)
    if not firmware:
        told = f"{NOT_FOUND}; the version on the cards is not read"
        yield Finding("device", "firmware package", "not examined", told)
    for name, version in sorted(listed.items()):
        if bridge is None or _release(version) == _release(bridge):
            yield Finding("device", name, "ok", version)
            continue
        remedy = "use the driver, firmware and image of one Gaudi software version"
        yield Finding("device", name, "warning", f"{version} beside bridge {bridge}", remedy)


def _debian(status: str) -> Iterator[tuple[str, str]]:
    """Name and version of the habanalabs packages in dpkg's status file."""
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        if fields.get("Package", "").startswith("habanalabs"):
            yield fields["Package"], fields.get("Version", "")


def _release(version: str) -> tuple[str, ...]:
    """Major and minor number: what driver, firmware and bridge have in common."""
    return tuple(re.findall(r"\d+", version)[:2])


def _names(subject: Subject) -> Iterator[Finding]:
    from inkling_hpu.gaudi.check import SourceTree, problems
    from inkling_hpu.gaudi.names import USES

    folder = subject.machine.module_folder("vllm_gaudi")
    if folder is None:
        remedy = "start from a vllm-gaudi image, or put a vllm-gaudi source tree on the path"
        yield Finding("versions", "vllm_gaudi's source", "fault", NOT_FOUND, remedy)
        return
    found = problems(USES, SourceTree(folder))
    for line in found:
        what, _, told = line.partition(": ")
        remedy = "install a vllm_gaudi of the support matrix, or adapt inkling_hpu.gaudi to this"
        yield Finding("versions", what, "fault", told, remedy)
    if not found:
        told = f"all {len(USES)} names that the adapter uses are there, unchanged"
        yield Finding("versions", "vllm_gaudi's source", "ok", told)


def _deployment(subject: Subject, config: InklingConfig) -> Deployment:
    """What was asked for, in the refusals' words."""
    import torch

    from inkling_hpu.refusals import Deployment

    asked, more = subject.settings, subject.more
    stored = config.dtype if asked.dtype == "auto" else asked.dtype
    dtype = more.get("other_dtype", stored)
    return Deployment.of_values(
        subject.machine.environ,
        dtype=getattr(torch, dtype, dtype),
        block_size=asked.block_size,
        max_model_len=asked.max_model_len or config.max_position_embeddings,
        tp_size=asked.tensor_parallel,
        pp_size=more.get("pipeline_parallel_size", 1),
        dp_size=more.get("data_parallel_size", 1),
        expert_parallel="enable_expert_parallel" in more,
        num_blocks=more.get("num_gpu_blocks_override"),
        kv_cache_dtype=more.get("kv_cache_dtype", "auto"),
        quantization=more.get("quantization"),
        speculative=more.get("speculative_config"),
        kv_transfer=more.get("kv_transfer_config") or more.get("kv_offloading_size"),
        lora="enable_lora" in more,
        float32_allowed=_emulated(subject),
    )


def _card(
    subject: Subject, asked: Deployment, config: InklingConfig, weights: int
) -> tuple[CardMemory, str]:
    """The card that the support matrix names, and its name."""
    from inkling_hpu.kv_cache import page_bytes
    from inkling_hpu.plan.card import GRAPH_SHARE, UTILIZATION, CardMemory
    from inkling_hpu.switches import Switches

    card, environ = read_matrix("inkling_hpu").data["card"], subject.machine.environ
    memory = CardMemory(
        total=int(card["memory_gib"] * GIB),
        weights=weights,
        page=page_bytes(config, asked.tp_size, asked.block_size, asked.dtype),
        layers=config.num_hidden_layers,
        mask=Switches.from_environment(environ).mask_bytes,
        utilization=subject.more.get("gpu_memory_utilization", UTILIZATION),
        graph_share=float(environ.get("VLLM_GRAPH_RESERVED_MEM", GRAPH_SHARE)),
        override=asked.num_blocks,
    )
    return memory, f"{card['name']} ({card['memory_gib']} GiB)"


def _pool(asked: Deployment, name: str, card: CardMemory) -> Finding:
    """The pool that was asked for, or the one that vllm-gaudi would make of what weights leave."""
    from inkling_hpu.refusals import pool_reason

    told = f"{card.left / GIB:.1f} GiB beside the weights"
    if asked.num_blocks is not None:
        found = f"{told}, {card.blocks * card.block / GIB:.1f} GiB for {card.blocks} blocks"
        if card.spare >= 0:
            return Finding("memory", name, "ok", found)
        most = card.blocks + card.spare // card.block
        remedy = f"lower --num-gpu-blocks-override to {max(0, most)}: graphs and masks need room"
        return Finding("memory", name, "fault", found, remedy)
    found = f"{told}; about {card.blocks} blocks"
    if pool_reason(card.blocks, asked.block_size, asked.max_model_len) is None:
        return Finding("memory", name, "ok", found)
    longest = max(0, card.blocks - 1) * asked.block_size
    remedy = f"raise --tensor-parallel-size, or lower --max-model-len to about {longest}"
    return Finding("memory", name, "warning", f"{found}, too few for one request", remedy)
