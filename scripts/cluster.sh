#!/usr/bin/env bash
# Runs the demo on a cluster in containers: docker_cluster.py on the Docker engine that answers, else on a private one.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/docker_engine.sh

child=
end() {
    # The cluster is taken down before the engine.
    [ -z "$child" ] || wait "$child"
    stop_docker_engine
}
trap end EXIT
trap '[ -z "$child" ] || kill -TERM "$child" 2>/dev/null; exit 130' INT TERM

if ! docker version >/dev/null 2>&1; then
    start_docker_engine || {
        echo "error: no Docker engine answers. Next: start one, or run this as root" >&2
        exit 1
    }
fi

.venv/bin/python scripts/docker_cluster.py "$@" &
child=$!
wait "$child"
