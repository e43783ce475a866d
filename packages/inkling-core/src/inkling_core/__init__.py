"""The Inkling family, defined once. Exports nothing heavy: import the submodule you need."""
