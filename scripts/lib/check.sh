# check.sh - what the scripts/check_* share. Sourced.
#
# A check looks at the tree, prints one line `FILE:LINE: what is wrong` a violation and exits 1 if
# there was any. With --self-test it plants violations in a copy and must find every one: a check
# that cannot fail is worse than none.

set -eu
LC_ALL=C
export LC_ALL
check_self=$(cd "$(dirname "$0")" && pwd -P)/${0##*/}
check_name=${0##*/}
check_lib=$(dirname "$check_self")/lib

# What comm.h may reach: the public headers of libtrireme-comm. All others are the training half's.
comm_headers="comm.h export.h call_site.h status.h types.h device_queue.h store.h group.h launch.h reducer.h rpc.h"

TRI_BUILD=$(cd "${TRI_BUILD:-build}" 2>/dev/null && pwd -P) || TRI_BUILD=build
export TRI_BUILD
# The tree to look at; --self-test sets it to a copy.
cd "${TRI_CHECK_ROOT:-$(dirname "$check_self")/..}"

# The sources: every C file and header that is ours.
sources() {
    for folder in ${*:-include src plugins tools examples bench tests}; do
        [ ! -d "$folder" ] || find "$folder" -name '*.[ch]'
    done | sort
}

# report: runs `violations`, which the check defines, prints what it printed and exits with the
# verdict. A check that broke half-way has not passed.
report() {
    broke=
    found=$(violations) || broke=1
    [ -z "$found" ] || printf '%s\n' "$found"
    if [ -n "$found" ]; then
        echo "$check_name: $(printf '%s\n' "$found" | wc -l) violation(s)"
        exit 1
    fi
    [ -z "$broke" ] || {
        echo "$check_name: could not finish"
        exit 1
    }
    exit 0
}

# self_test_begin [ENTRY...]: makes the copy, of these entries of the tree or of all that matter.
self_test_begin() {
    copy=$(mktemp -d "${TMPDIR:-/tmp}/trireme-check.XXXXXX")
    trap 'rm -rf "$copy"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    for entry in ${*:-include src plugins tools examples bench tests docs scripts cmake packaging run .clang-format \
        README.md CONTRIBUTING.md LICENSE CMakeLists.txt}; do
        mkdir -p "$copy/$(dirname "$entry")"
        [ ! -e "$entry" ] || cp -R "$entry" "$copy/$(dirname "$entry")/"
    done
    planted=0
    missed=0
    if ! TRI_CHECK_ROOT=$copy "$check_self" >"$copy/output" 2>&1; then
        cat "$copy/output"
        echo "$check_name --self-test: the tree itself does not pass"
        exit 1
    fi
}

# plant FILE TEXT: appends the text to the file of the copy (made if it is not there); the check
# must fail and name the file. Then everything is as before.
plant() {
    [ -f "$copy/$1" ] && cp "$copy/$1" "$copy/saved"
    mkdir -p "$copy/$(dirname "$1")"
    printf '%s\n' "$2" >>"$copy/$1"
    expect_caught "$1" "$2"
    if [ -f "$copy/saved" ]; then mv "$copy/saved" "$copy/$1"; else rm "$copy/$1"; fi
}

# expect_caught FILE WHAT: the check, run over the copy, must fail and name FILE.
expect_caught() {
    planted=$((planted + 1))
    if TRI_CHECK_ROOT=$copy "$check_self" >"$copy/output" 2>&1 || ! grep -qF "$1" "$copy/output"; then
        echo "$check_name --self-test: not caught in $1: $2"
        missed=$((missed + 1))
    fi
}

self_test_end() {
    echo "$check_name --self-test: $planted planted, $missed missed"
    [ "$missed" -eq 0 ] && [ "$planted" -gt 0 ]
    exit
}
