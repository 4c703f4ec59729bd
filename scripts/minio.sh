#!/usr/bin/env bash
# A real S3 on this machine: builds MinIO once, starts and stops it by pid, or runs a command with it.
set -euo pipefail

cd "$(dirname "$0")/.."

readonly VERSION=v0.0.0-20260212201848-7aac2a2c5b7c
readonly BUCKET=headgate-test
readonly START_S=60 STOP_S=20

usage() {
    cat <<'TEXT'
usage: scripts/minio.sh [test ARGS...]  run the tests marked `minio` with it (pytest's ARGS)
       scripts/minio.sh build          build MinIO into $HEADGATE_CACHE/bin, unless it is there (needs Go; some minutes)
       scripts/minio.sh start          start it on a free port of 127.0.0.1; prints what to export
       scripts/minio.sh stop           stop the one that `start` has started, and delete its data
       scripts/minio.sh run CMD...     start one of its own, run CMD with it, stop it; exits as CMD does
HEADGATE_CACHE is where the binary and `start`'s data are kept (default: ~/.cache/headgate).
TEXT
}

say() { printf 'minio: %s\n' "$*" >&2; }
die() {
    say "$1"
    shift
    for line in "$@"; do printf '       %s\n' "$line" >&2; done
    exit 1
}

cache=${HEADGATE_CACHE:-}
if [ -z "$cache" ]; then
    [ -n "${HOME:-}" ] || die "neither HEADGATE_CACHE nor HOME is set." "Set HEADGATE_CACHE to a folder that may be written."
    cache=$HOME/.cache/headgate
fi
binary=$cache/bin/minio-${VERSION##*-}
state=$cache/minio
runner='' # the process group of CMD, while `run` waits for it

# ---------------------------------------------------------------- build

build() {
    [ -x "$binary" ] && return
    command -v go >/dev/null || die "MinIO has to be built once, and Go is not on the PATH." \
        "Install it (https://go.dev/dl, \`apt install golang\` or \`brew install go\`), or put a MinIO binary at $binary."
    local work=$cache/minio-build began=$SECONDS
    mkdir -p "$cache/bin" "$work"
    exec 9>"$cache/minio-build.lock"
    if command -v flock >/dev/null; then flock 9; fi # two builds at once: the second one waits, and finds it built
    if [ ! -x "$binary" ]; then
        say "building github.com/minio/minio@$VERSION once, into $binary (about five minutes on two cores)"
        # Everything that Go writes stays below the cache and goes when the binary is there; -modcacherw: so that it can.
        GOPATH=$work/path GOMODCACHE=$work/path/pkg/mod GOCACHE=$work/build GOBIN=$work/bin CGO_ENABLED=0 \
            GOFLAGS="${GOFLAGS:-} -modcacherw" nice -n 10 go install "github.com/minio/minio@$VERSION" ||
            die "the build failed: see above." "Is the Go module proxy reachable? \`go env GOPROXY\` names it."
        mv "$work/bin/minio" "$binary"
        rm -rf "$work"
        say "built in $((SECONDS - began)) s"
    fi
    exec 9>&-
}

# ---------------------------------------------------------------- one process, known by pid and start

started_at() { # when process $1 started; nothing if there is none, or only its zombie
    ps -o stat=,lstart= -p "$1" 2>/dev/null | awk '$1 !~ /^Z/ { $1 = ""; print }'
}

is_running() {
    [ -s "$state/pid" ] || return 1
    local now
    now=$(started_at "$(cat "$state/pid")")
    [ -n "$now" ] && [ "$now" = "$(cat "$state/started")" ]
}

free_port() { # one that nobody listens on now
    local port try
    for try in $(seq 50); do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 25000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port" && return; }
    done
    die "no free port found in $try tries."
}

answers() { # whether http://127.0.0.1:$1 says that it is ready
    local status
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf 'GET /minio/health/ready HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&3
    read -r -t 5 status <&3 || status=''
    exec 3<&- 3>&-
    [[ $status == *' 200 '* ]]
}

launch() { # start it on port $1; fails if it does not come up there
    local port=$1 waited=0
    # A folder in the data folder is a bucket.
    mkdir -p "$state/data/$BUCKET"
    MINIO_ROOT_USER=$user MINIO_ROOT_PASSWORD=$password MINIO_UPDATE=off MINIO_BROWSER=off GOMEMLIMIT=300MiB \
        HOME=$state nohup "$binary" server --quiet --address "127.0.0.1:$port" "$state/data" \
        >"$state/log" 2>&1 </dev/null 9>&- &
    echo $! >"$state/pid"
    started_at $! >"$state/started"
    until answers "$port" 2>/dev/null; do
        is_running || return 1
        [ $((waited += 1)) -le $((START_S * 10)) ] || return 1
        sleep 0.1
    done
}

start() {
    build
    if is_running; then
        say "runs already, pid $(cat "$state/pid")"
        cat "$state/exports"
        return
    fi
    rm -rf "$state"
    mkdir -p "$state"
    user=headgate password=$(od -An -N12 -tx1 /dev/urandom | tr -d ' \n')
    local port try
    for try in 1 2 3; do
        port=$(free_port)
        if launch "$port"; then
            cat >"$state/exports" <<TEXT
export AWS_ENDPOINT_URL=http://127.0.0.1:$port
export AWS_ACCESS_KEY_ID=$user
export AWS_SECRET_ACCESS_KEY=$password
export AWS_DEFAULT_REGION=us-east-1
export HEADGATE_TEST_S3_URL=s3://$BUCKET
TEXT
            say "runs on 127.0.0.1:$port, pid $(cat "$state/pid"), data in $state/data"
            cat "$state/exports"
            return
        fi
        say "did not come up on port $port (try $try): $(tail -n 3 "$state/log" 2>/dev/null)"
        stop_process
    done
    die "MinIO does not start."
}

stop_process() { # ask it to end, then make it; back when it is gone
    is_running || return 0
    local pid waited=0
    pid=$(cat "$state/pid")
    kill "$pid" 2>/dev/null || true
    while is_running; do
        [ $((waited += 1)) -ne $((STOP_S * 10)) ] || kill -9 "$pid" 2>/dev/null || true
        [ "$waited" -le $(((STOP_S + 10) * 10)) ] || die "pid $pid does not end."
        sleep 0.1
    done
}

stop() {
    if is_running; then
        local pid
        pid=$(cat "$state/pid")
        stop_process
        say "stopped pid $pid"
    else
        say "is not running"
    fi
    rm -rf "$state"
}

# ---------------------------------------------------------------- run

end_run() { # however `run` ends: first CMD, then the server, then its data
    local code=$?
    trap - EXIT INT TERM HUP
    if [ -n "$runner" ]; then
        kill "$runner" 2>/dev/null || true
        wait "$runner" 2>/dev/null || true
    fi
    stop_process
    rm -rf "$state"
    exit "$code"
}

run() {
    [ $# -gt 0 ] || die "run what?" "usage: scripts/minio.sh run CMD..."
    build
    state=$(mktemp -d "${TMPDIR:-/tmp}/headgate-minio.XXXXXX")
    trap end_run EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    start >/dev/null
    # shellcheck disable=SC1091
    source "$state/exports"
    "$@" &
    runner=$!
    local code=0
    wait "$runner" || code=$?
    runner=''
    return "$code"
}

verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
build) build && say "$binary" ;;
start) start ;;
stop) stop ;;
run) run "$@" ;;
test | '') run .venv/bin/python -m pytest -m minio "$@" ;;
-h | --help | help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
