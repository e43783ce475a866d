"""Hydra configuration of `inkling buckets`, apart from the core's.

A package so that `pkg://inkling_hpu.buckets.conf` resolves.
"""
