#!/bin/sh
# Make .venv, install the package into it with the extras named as arguments, and stamp what was installed.
#
#   scripts/environment.sh              the package alone
#   scripts/environment.sh test bench   the package and what these extras need
#
# PYTHON names the interpreter (default: python3). Plain sh, because a fresh machine may have nothing else.
set -eu
cd "$(dirname "$0")/.."

venv=.venv
log=$venv.log
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

say() { printf '%s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# Only a Python that answers counts: a pyenv shim can be first on the PATH and have no version behind it.
find_python() {
    for candidate in "${PYTHON:-python3}" python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if usable "$candidate"; then
            say "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer is needed and none was found. Install it, or name one: make PYTHON=/path/to/python3"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

may_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    [ "$(id -u)" -eq 0 ] || sudo -n true >/dev/null 2>&1
}

# Debian and Ubuntu split venv out of python3, so it can be missing where Python is not.
create() {
    "$python" -m venv --clear "$venv" >"$log" 2>&1 && return
    if may_install; then
        say "Python has no venv here: installing Debian's python3-venv"
        as_root apt-get update -qq >>"$log" 2>&1 || true
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends python3-venv >>"$log" 2>&1 || true
        "$python" -m venv --clear "$venv" >>"$log" 2>&1 && return
    fi
    cat "$log" >&2
    fail "$python cannot make a virtual environment. On Debian or Ubuntu: apt-get install python3-venv, then try again."
}

# A real browser, and letters for Chinese, for the tests of the console. Without them those tests are skipped.
browser() {
    for candidate in chromium chromium-browser google-chrome; do
        command -v "$candidate" >/dev/null 2>&1 && return
    done
    may_install || return 0
    say "Installing Debian's chromium for the browser tests"
    as_root apt-get update -qq >"$log" 2>&1 || true
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends chromium fonts-noto-cjk >>"$log" 2>&1 ||
        say "It could not be installed; the browser tests will be skipped"
}

# What stands between the engine and PostgreSQL in many places. Without it its tests are skipped.
bouncer() {
    command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ] && return
    may_install || return 0
    say "Installing Debian's pgbouncer for its tests"
    as_root apt-get update -qq >"$log" 2>&1 || true
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends pgbouncer >>"$log" 2>&1 ||
        say "It could not be installed; the tests through PgBouncer will be skipped"
    # Only its program is wanted, not a service that starts with the machine.
    as_root sh -c 'command -v service && service pgbouncer stop' >>"$log" 2>&1 || true
}

# Runs quietly, and shows everything if it fails.
quietly() {
    "$@" >"$log" 2>&1 || { cat "$log" >&2; fail "the installation failed; its output is above"; }
}

extras=$(IFS=,; printf '%s' "$*")

# An environment whose Python has gone, or that was left half made, is made anew.
if ! usable "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    say "Making $venv with $("$python" --version)"
    create
fi

say "Installing dalsegno${extras:+ with $extras}"
quietly "$venv/bin/python" -m pip install --quiet -c constraints.txt -e ".${extras:+[$extras]}"

case ",$extras," in
    *,test,*) browser; bouncer ;;
esac

rm -f "$log"
touch "$venv/.installed"
for extra in "$@"; do
    touch "$venv/.installed-$extra"
done
