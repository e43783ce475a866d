"""Parse and render the Inkling chat format."""
