"""What `benchmarks/gpu.sh` runs; see there."""
