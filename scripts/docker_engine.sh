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
    end_engines_of_killed_shells
    docker_folder=$(mktemp -d /tmp/cairn-docker.XXXXXX)
    echo $$ >"$docker_folder/owner"
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
    if [ -n "$docker_folder" ]; then
        end_engine "$docker_folder" "$docker_pid"
        [ -z "$docker_pid" ] || wait "$docker_pid" 2>/dev/null || true
    fi
    docker_pid=
    docker_folder=
    unset DOCKER_HOST
}

# Ends the engine of a folder by its process id ("" if it did not start), and removes the folder.
end_engine() {
    local folder=$1 pid=$2
    if [ -n "$pid" ] && kill "$pid" 2>/dev/null; then
        local tries
        for tries in $(seq 1 60); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.5
        done
        kill -9 "$pid" 2>/dev/null || true
    fi
    # The folder cannot be removed while mounts of killed containers exist.
    awk -v under="$folder/" 'index($2, under) == 1 {print $2}' /proc/mounts | sort -r |
        while read -r mount; do umount -l "$mount" 2>/dev/null || true; done
    rm -rf "$folder"
}

# Ends the engines whose shell was killed. Their containers' network namespaces stay mounted and keep their addresses
# on the bridge: a new container has one of these addresses again, and connections to it are refused now and then.
end_engines_of_killed_shells() {
    local folder owner pid
    for folder in /tmp/cairn-docker.*; do
        [ -O "$folder" ] || continue
        owner=$(cat "$folder/owner" 2>/dev/null) || continue
        if kill -0 "$owner" 2>/dev/null; then
            continue
        fi
        pid=$(cat "$folder/dockerd.pid" 2>/dev/null) || pid=
        # The process id may belong to another program by now.
        if [ -n "$pid" ] && ! grep -qsF "$folder/data" "/proc/$pid/cmdline"; then
            pid=
        fi
        echo "Removing $folder of a private Docker engine whose shell was killed"
        end_engine "$folder" "$pid"
    done
}
