"""The commands that this package adds to `inkling`, as the core's table rows.

Not the commands themselves: each row names a settings class and a function, imported when the
command runs. Found through the entry-point group `inkling.commands`. Needs no torch.
"""

from inkling_core.cli.commands import Command

BENCH_OPS = Command(
    "bench ops",
    "bench_ops",
    "ops, all-reduces and bytes of one decode step, counted without a device",
    "inkling_hpu.counter.settings:BenchOpsSettings",
    "inkling_hpu.counter.command:run",
    (
        "inkling bench ops backend=hpu model=inkling_small tp=8",
        "inkling bench ops streams=16 context=262144 format=json",
        "inkling bench ops switches=none compare=false detail=true",
    ),
    conf="inkling_hpu.counter.conf",
)
