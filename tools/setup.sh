#!/bin/sh
# usage: setup.sh [arm]
# Installs what a build needs and this machine lacks; with arm, what a build for ARM and its emulation need. Debian's
# packages only, and only those whose contents are not there already. Never reads standard input. Does nothing, in well
# under a second, when nothing is missing.
set -eu
RUST_MIN=1.85

missing=""
need() { missing="$missing $1"; }
has_header() { printf '#include <%s>\n' "$1" | cc -E -x c - >/dev/null 2>&1; }

needs_for_arm() {
    command -v aarch64-linux-gnu-gcc >/dev/null 2>&1 || need gcc-aarch64-linux-gnu
    [ -e /usr/aarch64-linux-gnu/include/stdlib.h ] || need libc6-dev-arm64-cross
    command -v qemu-aarch64 >/dev/null 2>&1 || need qemu-user
}

needs() {
    command -v cc >/dev/null 2>&1 || need gcc
    has_header stdlib.h || need libc6-dev
    has_header microhttpd.h || need libmicrohttpd-dev
    has_header histedit.h || need libedit-dev
    printf '#include <setjmp.h>\n#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <cmocka.h>\n' |
        cc -E -x c - >/dev/null 2>&1 || need libcmocka-dev
    python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || need python3-venv
    [ -e /etc/ssl/certs/ca-certificates.crt ] || need ca-certificates

    # Rust: what is there if it is new enough, else Debian's rustc-web and cargo-web.
    rust=$( (cargo --version && rustc --version) 2>/dev/null | sed -n 's/^rustc \([0-9]*\.[0-9]*\).*/\1/p')
    if [ -z "$rust" ] || [ "$(printf '%s\n%s\n' "$RUST_MIN" "$rust" | sort -V | head -n 1)" != "$RUST_MIN" ]; then
        need rustc-web
        need cargo-web
    fi
}

if [ "${1:-}" = arm ]; then needs_for_arm; else needs; fi
[ -n "$missing" ] || exit 0
command -v apt-get >/dev/null 2>&1 || {
    echo "make: this needs (by their Debian names):$missing; install them with your system's package manager" >&2
    exit 1
}

install="apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then as=""
elif sudo -n true >/dev/null 2>&1; then as="sudo -n"
elif [ -t 0 ] && [ -t 2 ] && command -v sudo >/dev/null 2>&1; then as="sudo"
else
    echo "make: packages are missing and this user may not install them. Run this once, then try again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends$missing" >&2
    exit 1
fi

echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() { # sudo asks for its password on the terminal itself, not on standard input
    $as env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >"$log" 2>&1
}
# The lists may be absent or old: refresh them only when the first try fails.
# shellcheck disable=SC2086
if ! run $install; then
    run apt-get update || { cat "$log" >&2; exit 1; }
    run $install || {
        cat "$log" >&2
        echo "make: could not install:$missing" >&2
        exit 1
    }
fi
