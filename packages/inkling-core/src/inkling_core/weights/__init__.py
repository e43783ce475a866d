"""Weights of a first-generation checkpoint: names and shapes, reading, sizes, tiny checkpoints."""
