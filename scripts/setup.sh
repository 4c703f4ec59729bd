#!/usr/bin/env bash
# Makes .venv equal to requirements-dev.txt; does nothing when it already is. `make setup` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.venv LOCK=requirements-dev.txt STAMP=.venv/headgate-setup.sha256
readonly JAVA_HINT="Install it, e.g. \`apt install openjdk-17-jre-headless\` or \`brew install openjdk@17\`, or set JAVA_HOME, and run \`make setup\` again."
readonly NEED_MB=4000 # the environment, and the same again in a cache that begins empty

say() { printf 'setup: %s\n' "$*"; }
die() {
    printf 'setup: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '       %s\n' "$line" >&2; done
    exit 1
}

find_python() {
    local name
    for name in python3.11 python3 python; do
        if "$name" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    die "Python 3.11 is not on the PATH (neither python3.11 nor a python3 of that version)." \
        "Install it, e.g. \`apt install python3.11 python3.11-venv\`, \`brew install python@3.11\` or pyenv, and run \`make setup\` again."
}

check_java() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java out major
    out=$("$java" -version 2>&1) || die "Java 17 or newer is needed by Spark, and \`$java -version\` does not run." \
        "$JAVA_HINT"
    major=$(printf '%s\n' "$out" | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1)
    [ "${major:-0}" -ge 17 ] || die "Java 17 or newer is needed by Spark, and \`$java -version\` says: $(printf '%s\n' "$out" | head -n 1)" \
        "$JAVA_HINT"
}

check_disk() {
    local free_mb
    free_mb=$(df -Pm . | awk 'NR == 2 { print $4 }')
    [ "$free_mb" -ge "$NEED_MB" ] || die "the environment needs $NEED_MB MB of disk here and $free_mb MB are free." \
        "Make room, or move the checkout to a larger disk, and run \`make setup\` again."
}

# What .venv must have been made from: any change of it makes the environment anew or brings it up to date.
fingerprint() {
    "$1" - "$LOCK" scripts/setup.sh <<'PY'
import hashlib, pathlib, sys
digest = hashlib.sha256(repr((sys.version_info[:3], sys.platform)).encode())
for name in sys.argv[1:]:
    digest.update(pathlib.Path(name).read_bytes())
print(digest.hexdigest())
PY
}

make_venv() {
    if ! "$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
        say "creating $VENV with $1"
        rm -rf "$VENV"
        "$1" -m venv "$VENV" || die "\`$1 -m venv\` failed: see above." "On Debian and Ubuntu the package is python3.11-venv."
    fi
    "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || "$VENV/bin/python" -m ensurepip >/dev/null
}

# uv's own version and hashes stand in the lock like everybody's: pip installs that one block of it.
bootstrap_uv() {
    local block
    block=$(mktemp)
    awk '/^uv==/ { on = 1 } on { print } on && !/\\$/ { exit }' "$LOCK" >"$block"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r "$block" ||
        die "pip could not install uv: see above." "A package index must be reachable (pip's own settings are honoured)."
    rm -f "$block"
}

install_locked() {
    local index
    index=${PIP_INDEX_URL:-$("$VENV/bin/python" -m pip config get global.index-url 2>/dev/null || true)}
    if [ -n "$index" ]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}; fi
    export UV_PYTHON_DOWNLOADS=never UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-180}
    local sync=("$VENV/bin/uv" pip sync --python "$VENV/bin/python" --require-hashes --build-constraints "$LOCK" "$LOCK")
    # The system's certificates first, because a company's own live there; uv's bundled ones where a system has none.
    "${sync[@]}" --system-certs || { say "once more, with uv's own certificates" && "${sync[@]}"; } ||
        die "uv could not install $LOCK: see above." "Run \`make setup\` again when the cause is gone; what was downloaded is kept."
}

# Our own packages are used from where they are: a relative path file, and the `headgate` command.
link_checkout() {
    local site
    site=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\n' ../../../../plugins ../../../../spark_jobs >"$site/headgate.pth"
    cat >"$VENV/bin/headgate" <<'SH'
#!/bin/sh
# The headgate command of this checkout.
exec "$(dirname "$0")/python" -P -c 'import sys; from headgate_control.cli import main; sys.argv[0] = "headgate"; sys.exit(main())' "$@"
SH
    chmod +x "$VENV/bin/headgate"
}

# Spark's classes as the JVM maps them, in HEADGATE_CACHE: every start of a driver takes about two thirds of the time with them.
keep_classes() {
    local began=$SECONDS
    "$VENV/bin/python" -m headgate.spark.class_archive >/dev/null 2>"$VENV/class-archive.log" ||
        say "Spark's classes could not be kept ($VENV/class-archive.log says why): everything works, and starts slower"
    [ $((SECONDS - began)) -lt 10 ] || say "kept Spark's classes for faster starts in $((SECONDS - began)) s"
}

main() {
    local python want began=$SECONDS
    check_java
    python=$(find_python)
    want=$(fingerprint "$python")
    if [ "$(cat "$STAMP" 2>/dev/null)" = "$want" ] && "$VENV/bin/python" -c '' 2>/dev/null; then
        touch "$STAMP"
        keep_classes
        say "$VENV is up to date"
        return
    fi
    check_disk
    make_venv "$python"
    say "installing $(grep -c '^[a-zA-Z0-9].*==' "$LOCK") locked packages (the first time they are downloaded: about 0.8 GB)"
    bootstrap_uv
    install_locked
    link_checkout
    printf '%s\n' "$want" >"$STAMP"
    keep_classes
    say "done in $((SECONDS - began)) s"
}

main
