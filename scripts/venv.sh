#!/usr/bin/env bash
# Make .venv with a Python that panewise runs on, unless there is a good one already.
set -euo pipefail
cd "$(dirname "$0")/.."

# The pins in requirements.lock exist as wheels for these.
good="import sys; assert (3, 11) <= sys.version_info[:2] <= (3, 14)"

if .venv/bin/python -c "$good; import pip" 2>/dev/null; then
    exit
fi

for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 none}; do
    "$python" -c "$good" 2>/dev/null && break
done
if ! "$python" -c "$good" 2>/dev/null; then
    echo "panewise needs Python 3.11 to 3.14 and none was found: install one, or name it with \`make setup PYTHON=...\`." >&2
    exit 1
fi

if ! "$python" -c "import ensurepip, venv" 2>/dev/null; then
    version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    if ! scripts/apt.sh "python$version-venv" python3-venv || ! "$python" -c "import ensurepip, venv" 2>/dev/null; then
        echo "$python cannot make virtual environments: install its venv package (Debian, Ubuntu: \`sudo apt-get install python$version-venv\`) and run make again." >&2
        exit 1
    fi
fi

echo "Creating .venv with $("$python" --version) ..."
"$python" -m venv --clear .venv
