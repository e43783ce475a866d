"""How two computations of the same thing are compared: limits and measures, nothing else."""
