#!/usr/bin/env bash
# Builds, checks and times the Triton reference on a GPU, in under eight minutes, without a network.
#
#   benchmarks/gpu.sh OUT              everything; results in OUT/results.json, OUT/results.md
#   benchmarks/gpu.sh OUT --rehearse   the same steps on a CPU at toy sizes: no figure means anything
#
# Needs torch >= 2.9, triton >= 3.6, safetensors and rich; pytest and transformers are used where
# they are. Nothing is installed: the sources of this checkout are put on the path.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:?usage: benchmarks/gpu.sh OUT [--rehearse]}"
shift
mkdir -p "$out"
PYTHONPATH="$(printf '%s:' packages/inkling-{core,parsers,cuda-ref}/src)benchmarks${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH PYTHONUNBUFFERED=1
for arg in "$@"; do [ "$arg" = --rehearse ] && export TRITON_INTERPRET=1; done

python="${PYTHON:-python3}"
"$python" -c 'import torch, triton, safetensors, rich' || {
  echo "gpu.sh: needs torch, triton, safetensors and rich in $python" >&2
  exit 2
}
# seven minutes for all of it, the rest for start-up and writing
exec timeout 470 "$python" -m gpu.run --out "$out" --seconds 420 "$@"
