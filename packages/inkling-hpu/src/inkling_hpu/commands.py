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

BENCH_MASKS = Command(
    "bench masks",
    "bench_masks",
    "masks of one prefill chunk by context, counted without a device",
    "inkling_hpu.counter.settings:BenchMasksSettings",
    "inkling_hpu.counter.masks_command:run",
    (
        "inkling bench masks",
        "inkling bench masks model=inkling_small tp=8 context=[256000] format=json",
    ),
    conf="inkling_hpu.counter.conf",
)

BUCKETS = Command(
    "buckets",
    "buckets",
    "graphs that a Gaudi server warms up: every shape covered, worst padding, warm-up time",
    "inkling_hpu.buckets.settings:BucketsSettings",
    "inkling_hpu.buckets.command:run",
    (
        "inkling buckets",
        "inkling buckets max_model_len=[262144] max_num_seqs=8 format=json",
        "inkling buckets max_model_len=[262144] format=file",
        "inkling buckets max_model_len=[262144] check=buckets.txt",
    ),
    conf="inkling_hpu.buckets.conf",
)
