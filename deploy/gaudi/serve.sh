#!/usr/bin/env bash
# The container's command: `inkling doctor` on vLLM's own arguments, then vLLM's server with them.
#
#   serve.sh --model DIR --tensor-parallel-size 8 ...
#
# A fault that the doctor finds ends it before weights are read (SKIP_DOCTOR=1 goes on regardless).
# Listens on loopback unless --host says otherwise, which vLLM's own default does not.
# Never run on a Gaudi; tests/deploy runs it up to the doctor's refusal.
set -euo pipefail

python=${PYTHON:-python3}
set -- --host 127.0.0.1 "$@"  # the last one counts
# Values of all of vLLM's processes, for /metrics: there before Python starts, and empty. One
# server, one folder.
PROMETHEUS_MULTIPROC_DIR=${PROMETHEUS_MULTIPROC_DIR:-$(mktemp -d -t inkling-metrics.XXXXXX)}
export PROMETHEUS_MULTIPROC_DIR
mkdir -p "$PROMETHEUS_MULTIPROC_DIR"
rm -f "$PROMETHEUS_MULTIPROC_DIR"/*.db
export PT_HPU_LAZY_MODE=${PT_HPU_LAZY_MODE:-1}

if [ "${SKIP_DOCTOR:-0}" != 1 ]; then
    "$python" -m inkling_core.cli.main doctor device=gaudi -- "$@"
fi
exec "$python" -m vllm.entrypoints.openai.api_server "$@"
