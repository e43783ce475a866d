"""Hydra configuration of `inkling bench ops`, apart from the core's: its `model` and `backend` are
plain settings, not the groups of that name that say how to serve.

A package so that `pkg://inkling_hpu.counter.conf` resolves.
"""
