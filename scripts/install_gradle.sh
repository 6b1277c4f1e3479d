#!/usr/bin/env bash
# Checks that a JDK and Gradle are on PATH; installs Gradle by apt-get if that is allowed.
set -euo pipefail

command -v javac >/dev/null || {
    echo "error: no javac on PATH. Next: apt-get install openjdk-17-jdk-headless (or another JDK 17)" >&2
    exit 1
}
command -v gradle >/dev/null && exit 0

if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "Installing Gradle by apt-get (a minute, once)"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends gradle >/dev/null
fi
command -v gradle >/dev/null || {
    echo "error: no gradle on PATH. Next: sudo apt-get install gradle (4.4.1 or newer), or see https://gradle.org/install" >&2
    exit 1
}
