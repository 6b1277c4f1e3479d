#!/usr/bin/env bash
# Builds the shim for another minor version of Spark than the one in .venv: minor_shim.sh <minor> [gradle task...]
#
# The first time it makes .build/minors/<minor>, a virtual environment with the pyspark of python/minors/<minor>.txt,
# this package (editable), and what the integration tests import. Without a task it builds the jar and copies it beside
# the others, into python/src/cairn/jars.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
minor=$1
shift
requirements=python/minors/$minor.txt
venv=.build/minors/$minor
tests=(hypothesis pandas protobuf pytest rich testcontainers)

[ -f "$requirements" ] || {
    echo "error: no Spark $minor: $requirements does not exist. There are: $(cd python/minors && echo *.txt)" >&2
    exit 1
}
wanted=$(cat "$requirements" python/constraints.txt python/pyproject.toml && echo "${tests[@]}")
if [ "$wanted" != "$(cat "$venv/installed" 2>/dev/null)" ]; then
    echo "Installing Spark $minor into $venv (some minutes, once)"
    [ -x "$venv/bin/pip" ] || "${PYTHON:-python3}" -m venv "$venv"
    grep -v '^pyspark==' python/constraints.txt >"$venv/constraints"
    "$venv/bin/pip" install --quiet --disable-pip-version-check \
        -c "$venv/constraints" -r "$requirements" -e python "${tests[@]}"
    echo "$wanted" >"$venv/installed"
fi
jars=$("$venv/bin/python" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "jars")')
gradle --no-daemon --console=plain -q -PsparkJars="$jars" -Ppython="$PWD/$venv/bin/python" "${@:-jar}"
if [ $# = 0 ]; then
    mkdir -p python/src/cairn/jars
    cp "jvm-shim/build/$minor/libs/cairn-shim-$minor.jar" python/src/cairn/jars/
fi
