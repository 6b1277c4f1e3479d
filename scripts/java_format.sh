#!/usr/bin/env bash
# Formats all Java files with google-java-format: java_format.sh --install | --check | --replace
#
# The jar comes from the npm package of that name: 1.23.0, the latest that runs on JDK 17. Without it the exit code is 3.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tool=$root/.build/google-java-format
package='google-java-format@1.4.0'

if [ "$1" = --install ]; then
    if ! command -v npm >/dev/null; then
        echo "No npm on PATH: the format of Java is not checked. Next: apt-get install npm" >&2
        exit 0
    fi
    npm install --silent --no-audit --no-fund --prefix "$tool" "$package"
    exit 0
fi

jar=$(find "$tool/" -name 'google-java-format-*-all-deps.jar' 2>/dev/null | head -n 1) || true
if [ -z "$jar" ]; then
    echo "google-java-format is not installed. Next: apt-get install npm, then make check" >&2
    exit 3
fi
exports=()
for package in api code file parser tree util; do
    exports+=("--add-exports=jdk.compiler/com.sun.tools.javac.$package=ALL-UNNAMED")
done
case $1 in
    --check) mode=(--dry-run --set-exit-if-changed) ;;
    --replace) mode=(--replace) ;;
    *) echo "usage: java_format.sh --install | --check | --replace" >&2; exit 2 ;;
esac
cd "$root"
git ls-files --cached --others --exclude-standard -z -- '*.java' |
    xargs -0 -r java "${exports[@]}" -jar "$jar" "${mode[@]}"
