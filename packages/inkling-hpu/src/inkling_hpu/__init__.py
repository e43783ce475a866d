"""Inkling on Gaudi 2. Metadata only for now; see README.md."""
