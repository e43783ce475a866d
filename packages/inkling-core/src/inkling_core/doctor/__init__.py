"""`inkling doctor`: why a server would not start here, before it is started, and what to do.

subject.py     what is examined: the settings, a machine, vLLM's own arguments where given
findings.py    one line of the answer: what was found, how bad it is, the remedy
matrix.py      versions against a support matrix (`support.toml`): which ran together, when, on what
checkpoint.py  the folder: shards, sizes, tensors
fit.py         this machine: memory, port, settings that conflict
examination.py the checks of one kind of device; other packages add theirs
run.py         the command: table or JSON, exit status

What it is not: a second set of rules. Settings, checkpoints and pools are judged by the very
functions that refuse them at start (`inkling_core.serving.server`, `inkling_core.weights`). And it
reads no output of which no sample is at hand: a tool is found, or it is not.

Another package adds a device through the entry-point group `inkling.doctor`: an `Examination`.
"""
