"""Configuration of `inkling plan`."""
