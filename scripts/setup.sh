#!/usr/bin/env bash
# Set this checkout up on Debian or Ubuntu.
#
#   scripts/setup.sh python     the virtual environment .venv, with exact versions from constraints.txt
#   scripts/setup.sh programs   Prometheus, Alertmanager and Chromium for the tests
#
# Both do nothing when all is there. $PYTHON names another interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.venv

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 2; }

# as_root COMMAND...: run it as root, or fail when we cannot become root without a password.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# apt_install PACKAGE...: install Debian packages, or say which ones a person must install.
apt_install() {
    say "installing $*"
    command -v apt-get >/dev/null || die "needs the packages $*; this machine has no apt-get: install them, then try again"
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@")
    { as_root apt-get update -q && as_root "${install[@]}"; } >"${TMPDIR:-/tmp}/lastgood-apt.log" 2>&1 ||
        die "could not install $* (log: ${TMPDIR:-/tmp}/lastgood-apt.log). As root: apt-get install $*"
}

# find_python: print the first interpreter that is new enough.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    die "needs Python 3.11 or newer, found $(python3 --version 2>&1 || echo none): install one and run make PYTHON=python3.11"
}

make_venv() {
    local python
    python=$(find_python)
    # Debian splits venv's pip off into a package of its own.
    "$python" -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
    say "creating $VENV with $("$python" --version)"
    "$python" -m venv "$VENV"
}

setup_python() {
    [ -x "$VENV/bin/python" ] && "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || make_venv
    # torch first and alone: nothing else may choose another one.
    say "installing torch (the largest part; needs minutes on a slow line)"
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt torch
    say "installing lastgood and what its tests need"
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
    say "$VENV is ready"
}

has() { command -v "$1" >/dev/null; }

setup_programs() {
    local missing=()
    has prometheus || missing+=(prometheus)
    has prometheus-alertmanager || has alertmanager || missing+=(prometheus-alertmanager)
    [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"
    has chromium || has chromium-browser || has google-chrome || setup_browser
}

# Ubuntu ships Chromium as a snap only, which a container cannot run: there Playwright brings its own.
setup_browser() {
    if apt-cache show chromium >/dev/null 2>&1 || { as_root apt-get update -q && apt-cache show chromium; } >/dev/null 2>&1; then
        apt_install chromium
    else
        as_root "$PWD/$VENV/bin/playwright" install-deps chromium >/dev/null ||
            die "needs Chromium: install it, or as root: $VENV/bin/playwright install-deps chromium"
        "$VENV/bin/playwright" install chromium
    fi
}

case "${1:-}" in
    python) setup_python ;;
    programs) setup_programs ;;
    *) die "unknown part '${1:-}': python or programs" ;;
esac
