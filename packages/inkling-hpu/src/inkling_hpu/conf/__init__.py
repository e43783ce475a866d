"""Hydra configuration of this package's commands; the core finds it through `inkling.conf`.

A package so that `pkg://inkling_hpu.conf` resolves.
"""
