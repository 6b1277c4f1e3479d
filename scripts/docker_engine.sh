# Starts a private Docker engine and ends it by its process id. Source this file, then call start_docker_engine and stop_docker_engine.
#
# Needs root and a kernel that allows namespaces. Data, state, socket and log of the engine are in one new folder.
# Sets DOCKER_HOST on success; otherwise prints the reason, cleans up and returns 1.

docker_folder=
docker_pid=

start_docker_engine() {
    if [ "$(id -u)" != 0 ]; then
        echo "No private Docker engine: needs root"
        return 1
    fi
    if ! command -v dockerd >/dev/null; then
        echo "Installing docker.io by apt-get"
        # RUNLEVEL=1 keeps the package from starting a service.
        if ! { apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends docker.io iptables >/dev/null; }; then
            echo "No private Docker engine: apt-get could not install docker.io"
            return 1
        fi
    fi
    docker_folder=$(mktemp -d /tmp/cairn-docker.XXXXXX)
    local program
    program=$(command -v dockerd || echo /usr/sbin/dockerd)
    setsid "$program" --data-root "$docker_folder/data" --exec-root "$docker_folder/exec" \
        --pidfile "$docker_folder/dockerd.pid" --host "unix://$docker_folder/docker.sock" \
        --group root >"$docker_folder/dockerd.log" 2>&1 </dev/null &
    docker_pid=$!
    local tries
    for tries in $(seq 1 120); do
        if curl --silent --fail --unix-socket "$docker_folder/docker.sock" http://localhost/_ping >/dev/null 2>&1 ||
            docker --host "unix://$docker_folder/docker.sock" version >/dev/null 2>&1; then
            export DOCKER_HOST="unix://$docker_folder/docker.sock" TESTCONTAINERS_RYUK_DISABLED=true
            echo "A private Docker engine answers at $DOCKER_HOST"
            return 0
        fi
        kill -0 "$docker_pid" 2>/dev/null || break
        sleep 0.5
    done
    echo "No private Docker engine: dockerd did not start. The end of its log:"
    tail -n 5 "$docker_folder/dockerd.log"
    stop_docker_engine
    return 1
}

stop_docker_engine() {
    if [ -n "$docker_pid" ] && kill -0 "$docker_pid" 2>/dev/null; then
        kill "$docker_pid" 2>/dev/null || true
        local tries
        for tries in $(seq 1 60); do
            kill -0 "$docker_pid" 2>/dev/null || break
            sleep 0.5
        done
        kill -9 "$docker_pid" 2>/dev/null || true
        wait "$docker_pid" 2>/dev/null || true
    fi
    docker_pid=
    if [ -n "$docker_folder" ]; then
        # The folder cannot be removed while mounts of killed containers exist.
        awk -v under="$docker_folder/" 'index($2, under) == 1 {print $2}' /proc/mounts | sort -r |
            while read -r mount; do umount -l "$mount" 2>/dev/null || true; done
        rm -rf "$docker_folder"
    fi
    docker_folder=
    unset DOCKER_HOST
}
