"""Hydra configuration tree: one for every command.

A package so that `pkg://inkling_core.conf` resolves.
"""
