#!/bin/sh
# grown_library_test.sh - structs can grow: a program that was compiled against these headers prints the same
# with libraries whose options, classes and other structs each have one more field. (grown_test.sh: the
# reverse, a program that has the field and libraries that do not.)
#
# Those libraries are built for speed of building (-O0: 46 s of processor time for all of src), into a folder
# of the build that stays for the next time.
# ctest: labels=full timeout=900 tsan=no
set -eu
LC_ALL=C
export LC_ALL
build=$(dirname "$TRI_TEST_BIN")
cc=${CC:-cc}
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-grown.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    echo "grown_library_test: $*" >&2
    exit 1
}

# One more field in place of a reserved word. Included first, it is the export.h of all other headers.
sed 's/^#define TRI_RESERVED(n) .*/#define TRI_RESERVED(n) uint64_t grown; uint64_t reserved[(n) - 1]/' \
    "$TRI_TEST_SOURCE/include/trireme/export.h" >"$work/export.h"
grep -q 'uint64_t grown;' "$work/export.h" || fail "export.h does not define TRI_RESERVED(n) in one line"
mkdir -p "$build/grown"
cmp -s "$work/export.h" "$build/grown/export.h" || cp "$work/export.h" "$build/grown/export.h"
cmake -S "$TRI_TEST_SOURCE" -B "$build/grown" -G Ninja -DCMAKE_BUILD_TYPE=Dev -DCMAKE_C_FLAGS_DEV=-O0 \
    -DCMAKE_C_FLAGS="-include '$build/grown/export.h'" -DBUILD_TESTING=OFF \
    -DTRI_SANITIZE="${TRI_TEST_SANITIZE:-}" >"$work/log" 2>&1 || fail "$(tail "$work/log")"
cmake --build "$build/grown" --target trireme-models >"$work/log" 2>&1 || fail "$(tail "$work/log")"

# run_with LIBRARIES NAME: in a folder of its own; $work/NAME.out is what it prints.
run_with() {
    mkdir "$work/$2"
    (cd "$work/$2" && LD_LIBRARY_PATH=$1 TRI_LOG=error "$work/program") >"$work/$2.out" 2>&1 ||
        fail "the program with the libraries of $1: $(tail -n 5 "$work/$2.out")"
}

$cc -std=gnu11 -Wall -Wextra -Werror ${TRI_TEST_SANITIZE:+-fsanitize=$TRI_TEST_SANITIZE} \
    -I"$TRI_TEST_SOURCE/include" "$TRI_TEST_SOURCE/tests/install/grown/program.c" -o "$work/program" \
    -L"$build/lib" -ltrireme-models -ltrireme -ltrireme-comm -lm || fail "it does not compile"
run_with "$build/lib" today
run_with "$build/grown/lib" tomorrow
[ "$(wc -l <"$work/today.out")" -gt 30 ] || fail "program prints too little: $(cat "$work/today.out")"
diff "$work/today.out" "$work/tomorrow.out" >"$work/diff" ||
    fail "with one more field in each struct the program prints something else: $(cat "$work/diff")"

echo "grown_library_test: passed"
