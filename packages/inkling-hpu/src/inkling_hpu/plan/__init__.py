"""What `inkling plan` and `inkling doctor` know of a Gaudi before there is one.

card.py      how vllm-gaudi shares a card's memory
latency.py   time of a decode step, fitted to published figures
planner.py   the planner (entry point `inkling.plan: gaudi`)

Arithmetic only. `latency` needs neither torch nor vLLM.
"""
