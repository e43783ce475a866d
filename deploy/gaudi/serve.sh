#!/usr/bin/env bash
# The container's command: `inkling doctor` on vLLM's own arguments, then vLLM's server with them.
#
#   serve.sh --model DIR --tensor-parallel-size 8 ...
#
# A fault that the doctor finds ends it before weights are read (SKIP_DOCTOR=1 goes on regardless).
# Never run on a Gaudi; tests/deploy runs it up to the doctor's refusal.
set -euo pipefail

python=${PYTHON:-python3}
# Values of all of vLLM's processes, for /metrics: there before Python starts, and empty.
export PROMETHEUS_MULTIPROC_DIR=${PROMETHEUS_MULTIPROC_DIR:-/tmp/inkling-metrics}
mkdir -p "$PROMETHEUS_MULTIPROC_DIR"
rm -f "$PROMETHEUS_MULTIPROC_DIR"/*.db
export PT_HPU_LAZY_MODE=${PT_HPU_LAZY_MODE:-1}

if [ "${SKIP_DOCTOR:-0}" != 1 ]; then
    "$python" -m inkling_core.cli.main doctor device=gaudi -- "$@"
fi
exec "$python" -m vllm.entrypoints.openai.api_server "$@"
