"""Whether this machine can do what the settings ask: memory, port, and settings that conflict.

Not the rules: `inkling_core.serving.server` refuses the same at start, with the same functions.

    needed = weights of all ranks + pools of all ranks      (the engine's own memory comes on top)
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from itertools import chain

from inkling_core.doctor.checkpoint import config_of
from inkling_core.doctor.findings import Finding, refused
from inkling_core.doctor.subject import Machine, Subject
from inkling_core.embedded import checkpoint_folder

GIB = 2**30
UNLIMITED = 2**60  # cgroup v1 writes a huge number where there is no limit


def memory(subject: Subject) -> Iterator[Finding]:
    """Host memory for weights and pool, against what is free for this process."""
    free, ranks = available_memory(subject.machine), subject.settings.tensor_parallel
    weights = weight_bytes(subject)
    if free is None or ranks not in weights:
        yield Finding("memory", "host", "not examined", "free memory or weights are not known")
        return
    pool = subject.settings.kv_cache_mib * 2**20
    needed = ranks * (weights[ranks] + pool)
    found = (
        f"{needed / GIB:.2f} GiB for weights and pool of {ranks} rank(s), {free / GIB:.2f} GiB free"
    )
    if needed <= free:
        yield Finding("memory", "host", "ok", found)
        return
    remedy = "lower kv_cache_mib, free memory, or take a machine with more"
    yield Finding("memory", "host", "fault", found, remedy)


def weight_bytes(subject: Subject) -> dict[int, int]:
    """Tensor-parallel size -> bytes of weights a rank; empty where they are not known."""
    from inkling_core.weights import CheckpointError
    from inkling_core.weights.info import checkpoint_info

    config = config_of(subject)
    if config is None:
        return {}
    if not subject.settings.pack_experts:
        return checkpoint_info(config).card_bytes
    try:  # only the files say which experts are in a block format
        info = checkpoint_info(checkpoint_folder(subject.settings.checkpoint))
    except CheckpointError:  # a finding of its own
        return {}
    return info.packed_card_bytes or info.card_bytes


def available_memory(machine: Machine) -> int | None:
    """Bytes that this process may still take: the kernel's estimate, or less where a control group
    limits it. None where neither can be read."""
    found = [one for one in (_meminfo(machine), _control_group(machine)) if one is not None]
    return min(found, default=None)


def port(subject: Subject) -> Iterator[Finding]:
    """Whether the address can be bound, by binding it."""
    host, wanted = subject.settings.host, subject.settings.port
    error = _bind(host, wanted)
    if error is None:
        yield Finding("port", f"{host}:{wanted}", "ok", "free")
    elif error.errno == errno.EADDRINUSE:
        free = next((n for n in _others(wanted) if _bind(host, n) is None), None)
        other = "choose another port" if free is None else f"take port={free}, which is free"
        remedy = f"{other}, or stop what listens there"
        yield Finding("port", f"{host}:{wanted}", "fault", "taken", remedy)
    else:
        remedy = "choose a port from 1024 on, and a host that is an address of this machine"
        yield Finding("port", f"{host}:{wanted}", "fault", str(error), remedy)


def settings(subject: Subject) -> Iterator[Finding]:
    """What `inkling serve` would refuse about these settings and variables."""
    from inkling_core.serving import server
    from inkling_core.serving.launch import ON_CPU, launch_of

    config, asked = config_of(subject), subject.settings
    if config is None:
        yield Finding("settings", "all", "not examined", "they need a checkpoint")
        return
    try:
        launch = launch_of(asked.backend)
        if asked.backend in ON_CPU:
            launch.prepare(asked, dict(subject.machine.environ))
        fitted = server.fit(asked, checkpoint_folder(asked.checkpoint), config, launch)
    except ValueError as error:
        yield refused("settings", "inkling serve", str(error))
        return
    told = f"max_model_len={fitted.max_model_len}, dtype={fitted.dtype}: nothing conflicts"
    yield Finding("settings", "inkling serve", "ok", told)


def _meminfo(machine: Machine) -> int | None:
    for line in (machine.text("proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _control_group(machine: Machine) -> int | None:
    """What is left below the limit of this process's control group, version 2 or 1."""
    for limit, used in (
        ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
        (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        numbers = [(machine.text(path) or "").strip() for path in (limit, used)]
        if all(number.isdigit() for number in numbers) and int(numbers[0]) < UNLIMITED:
            return max(0, int(numbers[0]) - int(numbers[1]))
    return None


def _others(wanted: int) -> Iterator[int]:
    """Ports after the wanted one, then the usual ones."""
    return chain(range(wanted + 1, min(wanted + 20, 65536)), range(8000, 8100))


def _bind(host: str, number: int) -> OSError | None:
    """The error of binding `host:number`, or None. Leaves nothing behind."""
    try:
        family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            probe.bind((host, number))
    except OSError as error:
        return error
    return None
