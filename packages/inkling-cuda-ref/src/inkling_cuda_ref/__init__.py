"""Triton reference for Inkling. Metadata only for now; see README.md."""
