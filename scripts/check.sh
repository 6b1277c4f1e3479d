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

types() (
    cd python && "$bin/mypy" --config-file pyproject.toml src
)

types_of_scripts() (
    # From here: seen from the root, the folder docker/ would pass for the package of that name.
    cd integration-tests && "$bin/mypy" --config-file ../python/pyproject.toml harness demo ../scripts
)

documents() {
    # The page is generated from the settings' table; a difference means that it was not renewed.
    "$bin/python" scripts/configuration_page.py --check
}

check "lint: ruff check" "$bin/ruff" check python integration-tests scripts spec
check "format: ruff format" "$bin/ruff" format --check python integration-tests scripts spec
check "types: mypy --strict" types
check "types: mypy --strict, harness and scripts" types_of_scripts
check "layers: import-linter" layers
check "format: google-java-format" scripts/java_format.sh --check
check "sizes: modules and functions" "$bin/python" scripts/check_sizes.py
if [ -f scripts/configuration_page.py ]; then
    check "documents: docs/configuration.md" documents
fi

if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "All checks passed"
