#!/bin/sh
# library_test.sh - libtrireme-comm stays small and needs no other: stripped, all of it but the room
# rpc is below 400 KB, and rpc, which programs that average gradients have no use for, adds less than
# a bound of its own (both are linked, so that what it costs in tables and symbols counts as its);
# it loads nothing but libc (and libsodium, where it was there), and its static form defines no name
# that a program could have too.
# ctest: labels=full timeout=60
set -eu
LC_ALL=C
export LC_ALL
lib=$(dirname "$TRI_TEST_BIN")/lib
limit=400000
rpc_limit=95000
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-library.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() {
    echo "library_test: $*" >&2
    exit 1
}

# loaded FILE: what of it comes into memory, without zeros. Files are as long as whole pages: a page more
# or less says nothing.
loaded() {
    size "$1" | awk 'NR == 2 { print $1 + $2 }'
}

# What a sanitizer adds is neither ours nor small.
if [ -z "${TRI_TEST_SANITIZE:-}" ]; then
    without=$(dirname "$TRI_TEST_BIN")/test/libcomm-without-rpc.so
    strip -o "$work/without" "$without"
    bytes=$(wc -c <"$work/without")
    rpc=$(($(loaded "$lib/libtrireme-comm.so") - $(loaded "$without")))
    echo "libtrireme-comm stripped: $bytes bytes, and $rpc of rpc"
    if [ "${TRI_TEST_BUILD_TYPE:-}" != Dev ]; then # where assertions add more than a tenth
        [ "$bytes" -lt $limit ] || fail "$bytes bytes stripped without rpc, $limit allowed"
        [ "$rpc" -lt $rpc_limit ] || fail "$rpc bytes of rpc, $rpc_limit allowed"
    fi
    needed=$(readelf -d "$lib/libtrireme-comm.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    for library in $needed; do
        case $library in
        libc.* | libm.so* | libdl.so* | libpthread.so* | ld-linux* | libsodium.so*) ;;
        *) fail "loads $library" ;;
        esac
    done
fi

for archive in libtrireme-comm.a libtrireme.a libtrireme-models.a; do
    nm -g --defined-only "$lib/$archive" 2>/dev/null | awk 'NF == 3 { print $3 }' |
        grep -vE '^trii?_' | grep -vE '^(__asan|__odr_asan|__tsan|__ubsan)' >"$work/names" || true
    [ ! -s "$work/names" ] || fail "$archive defines: $(tr '\n' ' ' <"$work/names")"
done
echo "library_test: passed"
