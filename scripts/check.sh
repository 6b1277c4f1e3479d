#!/usr/bin/env bash
# All static checks, each under its name; runs every one and fails at the end if one failed.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$PWD/.venv/bin
failed=()

check() {
    local name=$1
    shift
    echo "== $name"
    "$@" || failed+=("$name")
}

layers() (
    cd python && "$bin/lint-imports" --config pyproject.toml
)

# types <folder> <what>...: from that folder, as what is in it imports its neighbours. Never from
# the root: seen from there, the folder docker/ would pass for the package of that name.
types() (
    config=$PWD/python/pyproject.toml
    cd "$1" && "$bin/mypy" --config-file "$config" "${@:2}"
)

# Programs that import what lies beside them are typed each in its own folder, all others together.
own_folders=(bench spark_suites)

types_of_integration_tests() {
    local folder together=(conftest.py)
    for folder in integration-tests/*/; do
        folder=$(basename "$folder")
        [[ " ${own_folders[*]} " == *" $folder "* ]] || together+=("$folder")
    done
    types integration-tests "${together[@]}"
}

documents() {
    # The page is generated from the settings' table; a difference means that it was not renewed.
    "$bin/python" scripts/configuration_page.py --check || return
    # No figure on that page is typed by hand.
    "$bin/python" integration-tests/bench/report.py --check
}

check "lint: ruff check" "$bin/ruff" check python integration-tests scripts spec
check "format: ruff format" "$bin/ruff" format --check python integration-tests scripts spec
check "types: mypy --strict, package and its tests" types python src tests
check "types: mypy --strict, integration tests" types_of_integration_tests
for folder in "${own_folders[@]}"; do
    check "types: mypy --strict, $folder" types "integration-tests/$folder" .
done
check "types: mypy --strict, scripts and vectors" types integration-tests ../scripts ../spec
check "layers: import-linter" layers
check "format: google-java-format" scripts/java_format.sh --check
check "sizes: modules and functions" "$bin/python" scripts/check_sizes.py
check "documents: docs/configuration.md, docs/benchmarks.md" documents

if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "All checks passed"
