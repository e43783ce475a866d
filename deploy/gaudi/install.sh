#!/usr/bin/env bash
# Installs inkling into a vllm-gaudi image, and takes it out again.
#
#   install.sh [--python PYTHON] [--wheels FOLDER] [--dry-run] [--no-doctor]
#   install.sh --undo [--python PYTHON] [--dry-run]
#
# Adds this repository's three wheels and what they need that the image lacks. What the image has stays
# as it is, torch and vLLM above all: every installed version is a constraint, and a plan that would
# change one is refused. A second run does nothing but look. --undo removes what was added, and
# nothing else. Ends with `inkling doctor device=gaudi`, whose exit status it returns (1: a fault).
#
# tests/deploy runs it in an environment that has the image's metadata; on a real image it was never
# run.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
python=python3
wheels=$here/wheels
[ -d "$wheels" ] || wheels=$here/../../dist
undo="" dry="" doctor=yes

fail() {
    echo "install.sh: $1" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
        --python) [ $# -gt 1 ] || fail "--python needs a path"; python=$2; shift ;;
        --wheels) [ $# -gt 1 ] || fail "--wheels needs a folder"; wheels=$2; shift ;;
        --dry-run) dry=yes ;;
        --undo) undo=yes ;;
        --no-doctor) doctor="" ;;
        -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
        *) fail "unknown option $1; --help lists them" ;;
    esac
    shift
done

command -v "$python" > /dev/null || fail "no Python at $python: name the image's own with --python"
if [ -n "$undo" ]; then
    exec "$python" "$here/installed.py" undo ${dry:+--dry-run}
fi
"$python" "$here/installed.py" install --wheels "$wheels" ${dry:+--dry-run}
[ -z "$dry" ] && [ -n "$doctor" ] || exit 0
exec "$python" -m inkling_core.cli.main doctor device=gaudi
