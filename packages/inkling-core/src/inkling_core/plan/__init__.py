"""`inkling plan`: what a server will hold before there is a machine for it.

settings.py    what is asked for; the names are those of `inkling serve`
record.py      what every device answers: memory by part, pool, requests, step time, launch command
change.py      the smallest changes that make an impossible plan possible
cpu.py         the arithmetic of a CPU; others add theirs (entry-point group `inkling.plan`)
command.py     the command; report.py its tables and plot

Arithmetic only: nothing is started and no weights are read. The functions are those that servers
and `inkling doctor` use.
"""
