"""The ops of Inkling as Triton kernels, and the source of parity bundles; see README.md."""
