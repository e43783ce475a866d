"""Configuration of the parity commands: a tree of their own (`backend` is a setting there)."""
