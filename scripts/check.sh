#!/usr/bin/env bash
# Runs all static checks, each under its name; fails at the end if one of them has failed. A check without its tool exits
# with 3: the last lines name it, and it does not fail.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$PWD/.venv/bin
folders=(python integration-tests examples benchmarks scripts spec)
failed=()
skipped=()

check() {
    local name=$1 code=0
    shift
    echo "== $name"
    "$@" || code=$?
    case $code in
        0) ;;
        3) skipped+=("$name") ;;
        *) failed+=("$name") ;;
    esac
}

python_layers() (
    cd python && PYTHONPATH=src "$bin/lint-imports" --config pyproject.toml
)

# types <folder> <what>...: runs mypy in that folder, because its files import their neighbours.
# Never in the root, where mypy takes the folder docker/ for the package of that name.
types() (
    config=$PWD/python/pyproject.toml
    cd "$1" && "$bin/mypy" --config-file "$config" "${@:2}"
)

types_of_integration_tests() {
    local folder together=(conftest.py)
    for folder in $(git ls-files 'integration-tests/*/*.py' | cut -d / -f 2 | sort -u); do
        [ "$folder" = spark_suites ] || together+=("$folder")
    done
    types integration-tests "${together[@]}"
}

check "lint: ruff check" "$bin/ruff" check "${folders[@]}"
check "format: ruff format" "$bin/ruff" format --check "${folders[@]}"
check "format: google-java-format" scripts/java_format.sh --check
check "types: mypy --strict, package and its tests" types python src tests hatch_build.py
check "types: mypy --strict, integration tests" types_of_integration_tests
for folder in integration-tests/spark_suites examples/flights examples/sample examples/transform examples/arrow benchmarks; do
    check "types: mypy --strict, $folder" types "$folder" .
done
check "types: mypy --strict, scripts and vectors" types scripts . ../spec
check "layers: import-linter" python_layers
check "layers: imports and circles of both languages" "$bin/python" scripts/check_layers.py
check "tests: private parts" "$bin/python" scripts/check_privates.py
check "sizes: lines and arguments" "$bin/python" scripts/check_sizes.py
check "documents: line lengths" "$bin/python" scripts/check_documents.py
check "documents: docs/adr/README.md" "$bin/python" scripts/adr_index.py --check
check "documents: links" "$bin/python" scripts/check_links.py
check "documents: docs/configuration.md" "$bin/python" scripts/configuration_page.py --check
check "documents: docs/api.md" "$bin/python" scripts/api_page.py --check
check "documents: docs/commands.md" "$bin/python" scripts/commands_page.py --check
check "documents: tables of benchmarks" "$bin/python" benchmarks/report.py --check
check "documents: charts of benchmarks" "$bin/python" benchmarks/charts.py --check
check "documents: docs/parity.md" "$bin/python" scripts/parity_page.py --check

[ ${#skipped[@]} = 0 ] || printf 'NOT CHECKED: %s\n' "${skipped[@]}"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
[ ${#skipped[@]} -gt 0 ] && echo "All other checks passed" || echo "All checks passed"
