#!/bin/sh
# Makes what every target of the Makefile needs: .venv with the locked packages, and Java 17 or newer.
# Says what it does; a second run does nothing. On Debian as root it installs what is missing with
# apt-get, elsewhere it stops with one line that says what to install.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "txlake setup: $*" >&2; }
fail() { say "$*"; exit 1; }
may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

# Other targets write their logs there.
mkdir -p .cache
log=.cache/setup.log
apt_update_done=
# install WHAT PACKAGE...: the first of the packages that this release of Debian has.
install() {
    what=$1; shift
    if may_install && [ -z "$apt_update_done" ]; then
        apt-get update -qq >"$log" 2>&1 ||
            fail "apt-get update failed ($log); install $what and run again"
        apt_update_done=1
    fi
    chosen=
    for package in "$@"; do
        # A name that other packages only refer to has no candidate.
        if LC_ALL=C apt-cache policy "$package" 2>/dev/null | grep -q 'Candidate: [^(]'; then
            chosen=$package
            break
        fi
    done
    may_install || fail "$what is missing; install it (on Debian: apt-get install ${chosen:-$1}) and run again"
    [ -n "$chosen" ] || fail "this release has no package for $what (looked for: $*); install it and run again"
    say "$what is missing, installing $chosen"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$chosen" \
        >>"$log" 2>&1 </dev/null ||
        fail "apt-get could not install $chosen ($log); install $what and run again"
}

# suits PYTHON: it runs, is new enough, and can make environments.
suits() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 &&
        "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

python=
find_python() {
    for name in python3 python3.13 python3.12 python3.11; do
        if suits "$name"; then python=$name; return 0; fi
    done
    return 1
}

make_venv() {
    find_python || {
        install "Python 3.11 or newer with venv" python3-venv
        find_python || fail "python3 is older than 3.11; install Python 3.11 or newer and run again"
    }
    # An environment that was moved, or whose python is gone, is made anew.
    if [ ! -x .venv/bin/python ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        say "making .venv with $("$python" --version)"
        "$python" -m venv --clear .venv
    fi
    say "installing requirements.lock into .venv"
    # The pip that Python 3.11 brings takes a minute to choose among the wheels of these packages.
    quietly install pip==26.3
    # PySpark comes as source, and making its wheel takes as long as installing the others: both at once.
    wheels=$(mktemp -d)
    trap 'rm -rf "$wheels"' EXIT
    quietly wheel --no-deps --wheel-dir "$wheels" "$(grep '^pyspark==' requirements.lock)" &
    making=$!
    installed=yes
    grep -v '^pyspark==' requirements.lock >"$wheels/others"
    quietly install --no-compile -r "$wheels/others" || installed=
    wait "$making" || installed=
    [ -n "$installed" ] || fail "pip could not install requirements.lock; run again when its errors above are solved"
    quietly install --no-compile --no-deps "$wheels"/pyspark-*.whl
    quietly install --no-deps --no-build-isolation -e .
}

# quietly COMMAND ARGUMENT...: pip's command. Without --no-compile it compiles 14,000 modules, of which
# few are imported, and those are compiled then.
quietly() {
    command=$1; shift
    .venv/bin/python -m pip "$command" --quiet --disable-pip-version-check "$@"
}

# The stamp holds what the environment was made from; another place or lock makes it stale.
wanted=$(pwd; cksum requirements.lock pyproject.toml)
stamp=.venv/.txlake-stamp
if [ ! -x .venv/bin/python ] || [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    make_venv
    printf '%s\n' "$wanted" >"$stamp"
fi

[ "${1-}" = --no-java ] && exit 0

# java_major JAVA: 17 for `openjdk version "17.0.15"`, 1 for the "1.8" of old ones, nothing when it fails.
java_major() { "$1" -version 2>&1 | sed -n 's/^[^"]* version "\([0-9]*\).*/\1/p' | head -n 1; }

java=java
[ -z "${JAVA_HOME-}" ] || java=$JAVA_HOME/bin/java
major=$(java_major "$java" || true)
if [ "${major:-0}" -lt 17 ]; then
    if [ -n "${JAVA_HOME-}" ]; then
        fail "JAVA_HOME ($JAVA_HOME) has no Java 17 or newer; point it at one, or unset it, and run again"
    fi
    install "Java 17 or newer" openjdk-17-jre-headless default-jre-headless
    major=$(java_major java || true)
    [ "${major:-0}" -ge 17 ] ||
        fail "java is version ${major:-unknown}, Spark needs 17; select a newer one (update-alternatives --config java)"
fi
