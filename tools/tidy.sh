#!/bin/sh
# House style that a machine can check: file and function sizes, line lengths, words, tests beside the code.
# Prints what is wrong, one line each, and fails if there is anything.
set -eu
files=$(find src tests -name '*.[ch]' ! -name '*_tab.c')

out=$(
    # A file of 1,000 lines is more than one noun; a function of 70 does more than one thing; a line has 140 columns at most.
    for f in $files; do
        awk -v f="$f" '
            length($0) > 140 { printf "%s:%d: line of %d columns (140 at most)\n", f, NR, length($0) }
            /^{/ { start = NR }
            /^}/ && start { if (NR - start - 1 > 70) printf "%s:%d: function of %d lines (70 at most)\n", f, start, NR - start - 1; start = 0 }
            END { if (NR > 1000) printf "%s: %d lines (1000 at most)\n", f, NR }' "$f"
    done
    # Words that stand for work not done, or for words we do not use.
    grep -nE '\b(TODO|FIXME|XXX|HACK|not implemented|unimplemented|whitelist|blacklist)\b' $files tools/*.py tests/e2e/*.py 2>/dev/null || true
    # Only conf reads the environment, only cmd ends the process (tests may: a seed to replay, a child that must die).
    grep -nE '\bgetenv\(' $(find src -name '*.c' ! -path 'src/conf/*' ! -name '*_test.c') || true
    grep -nE '[^_a-z](exit|_exit)\(' $(find src -name '*.c' ! -path 'src/cmd/*' ! -name '*_test.c') || true
    # Outside libraries are seen by one folder each.
    grep -ln 'microhttpd.h' $(find src -name '*.[ch]' ! -path 'src/http/*') || true
    grep -ln 'yyjson.h' $(find src -name '*.[ch]' ! -path 'src/base/json*') || true
    grep -ln 'immintrin.h' $(find src -name '*.[ch]' ! -path 'src/kern/*' ! -path 'src/base/workers.c') || true
    # A header opens with what it owns, what it refuses to know, its threads and its lifetime.
    for f in $(find src tests -name '*.h'); do
        head=$(awk '{ print } /\*\//{ exit }' "$f")
        for part in Owns 'Refuses to know' Thread ifetime; do
            case $head in *"$part"*) ;; *) echo "$f: its head comment does not say: $part" ;; esac
        done
    done
    # Every room but the program's verbs has a test.
    for d in src/*/; do
        case $d in src/cmd/) continue ;; esac
        [ -n "$(find "$d" -name '*.c')" ] || continue
        find "$d" -name '*_test.c' | grep -q . || echo "$d: no test beside the code"
    done
)
[ -z "$out" ] || { printf '%s\n' "$out"; exit 1; }
