"""Counts what one decode step asks of a device: ops, all-reduces, bytes (`inkling bench ops`).

    rule.py        what weighs 0 and 1, and what is opened up instead
    body.py        opens up composite and custom ops
    traffic.py     bytes of one op
    mode.py        sees every call of a step
    tally.py       sums by layer kind, part and op
    layer_kinds.py which layer is running
    parts.py       which part of a layer issued an op
    decode_step.py the decoder that the plugin serves, on the meta device, and one decode step of it
    settings.py, command.py, report.py   the command

Not a measurement: no clock and no Gaudi is involved. On Gaudi 2 a decode step is bound by the
number of its ops and collectives, which is why the number is worth keeping small; what an op costs
is not known here. Counts compare within one rule only (docs/backends/hpu-op-count.md).
"""
