#!/usr/bin/env bash
# Set this checkout up on Debian or Ubuntu.
#
#   scripts/setup.sh python     the virtual environment .venv, with exact versions from constraints.txt
#   scripts/setup.sh programs   Prometheus, Alertmanager, VictoriaMetrics, nginx, Chromium and a compiler for the tests
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

# unknown_to_apt PACKAGE...: print those that this distribution does not have.
unknown_to_apt() {
    local package
    for package in "$@"; do
        apt-cache show "$package" >/dev/null 2>&1 || printf '%s ' "$package"
    done
}

# apt_install PACKAGE...: install Debian packages, or say which ones a person must install.
apt_install() {
    local log unknown
    command -v apt-get >/dev/null || die "needs $*, and this machine has no apt-get: install them, then try again"
    as_root true || die "needs Debian packages and is not root. Run: sudo apt-get install $*"
    log=$(mktemp)
    say "installing $*"
    as_root apt-get update -q >"$log" 2>&1 || true # a broken third-party list need not stop us
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >>"$log" 2>&1 || {
        unknown=$(unknown_to_apt "$@")
        [ -z "$unknown" ] || die "apt knows no package ${unknown% }: put its program on PATH, then try again; the log is $log"
        die "could not install $*; the log is $log. Run: sudo apt-get install $*"
    }
    rm -f "$log"
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
    # grafana-client needs urllib3-future, which must not replace the urllib3 that others need.
    URLLIB3_NO_OVERRIDE=1 "$VENV/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt \
        --no-binary urllib3-future -e '.[dev]'
    say "$VENV is ready"
}

has() { command -v "$1" >/dev/null; }
has_chromium() { has chromium || has chromium-browser || has google-chrome; }
is_ubuntu() { grep -q '^ID=ubuntu' /etc/os-release 2>/dev/null; }

setup_programs() {
    local missing=()
    has prometheus || missing+=(prometheus)
    has prometheus-alertmanager || has alertmanager || missing+=(prometheus-alertmanager)
    has victoria-metrics || missing+=(victoria-metrics)
    has nginx || has /usr/sbin/nginx || missing+=(nginx-light)
    has g++ || missing+=(g++)
    has_chromium || is_ubuntu || missing+=(chromium)
    [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"
    has_chromium || setup_playwright_browser
}

# Ubuntu has Chromium as a snap only, which a container cannot run: there Playwright brings its own.
setup_playwright_browser() {
    ls "$HOME"/.cache/ms-playwright/chromium-* >/dev/null 2>&1 && return
    say "installing Playwright's Chromium"
    as_root "$PWD/$VENV/bin/playwright" install-deps chromium >/dev/null ||
        die "needs the libraries of Chromium. Run: sudo $VENV/bin/playwright install-deps chromium"
    "$VENV/bin/playwright" install chromium
}

case "${1:-}" in
    python) setup_python ;;
    programs) setup_programs ;;
    *) die "unknown part '${1:-}': python or programs" ;;
esac
