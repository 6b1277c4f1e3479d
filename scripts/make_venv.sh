#!/usr/bin/env bash
# Creates the virtual environment with the package, editable, and its development tools: make_venv.sh <folder>
set -euo pipefail

venv=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    echo "error: Cairn needs Python 3.11 or newer, and $python is $("$python" --version 2>&1 || echo missing)." >&2
    echo "Next: apt-get install python3 python3-venv, or select another one: make PYTHON=python3.12 ..." >&2
    exit 1
}
if ! [ -x "$venv/bin/pip" ]; then
    echo "Creating $venv with $("$python" --version)"
    "$python" -m venv "$venv" || {
        echo "error: $python cannot create virtual environments. Next: apt-get install python3-venv" >&2
        exit 1
    }
fi
echo "Installing Cairn's dependencies into $venv (a minute, once)"
"$venv/bin/pip" install --quiet --disable-pip-version-check \
    -c "$root/python/constraints.txt" -e "$root/python[dev]"
