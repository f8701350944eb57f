#!/bin/sh
# gdb_test.sh - a debugger shows tensors, and stops in the call that failed.
# ctest: start=first labels=full timeout=120
set -eu
LC_ALL=C ASAN_OPTIONS=detect_leaks=0 # it cannot look for leaks beside a debugger
export LC_ALL ASAN_OPTIONS
build=$(dirname "$TRI_TEST_BIN")
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-gdb.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

cat >"$work/look.c" <<'END'
#include <trireme/trireme.h>

static void stop_here(tri_tensor *seen)
{
    (void)seen;
}

int main(void)
{
    const float numbers[4] = {1, 2, 3, 4};
    tri_tensor *x = tri_tensor_set_name(tri_tensor_from(TRI_SHAPE(2, 2), TRI_DTYPE_F32, numbers), "x");
    tri_tensor *y = tri_keep(tri_matmul(x, x)), *wrong;

    if (tri_run() != TRI_OK)
        return 1;
    stop_here(y);
    wrong = tri_matmul(x, tri_reshape(y, TRI_SHAPE(1, 4)));
    stop_here(wrong);
    return 0;
}
END
${CC:-cc} -g -O0 ${TRI_TEST_SANITIZE:+-fsanitize=$TRI_TEST_SANITIZE} \
    -I"$TRI_TEST_SOURCE/include" "$work/look.c" -o "$work/look" \
    -L"$build/lib" -ltrireme -ltrireme-comm -Wl,-rpath,"$build/lib"

TRI_BREAK=1 gdb -nx -batch -ex "source $TRI_TEST_SOURCE/packaging/gdb/trireme.py" \
    -ex 'set confirm off' -ex 'break stop_here' -ex run -ex up -ex 'p x' -ex 'p y' \
    -ex continue -ex 'backtrace' "$work/look" >"$work/said" 2>&1 || :

expect() {
    grep -q "$1" "$work/said" || {
        echo "gdb_test: gdb does not say '$1' but:" >&2
        cat "$work/said" >&2
        exit 1
    }
}
expect '"x" f32 \[2, 2\] = \[1, 2, 3, 4\]'
expect 'f32 \[2, 2\] by matmul at .*look.c:[0-9]* = \[7, 10, 15, 22\]'
expect 'SIGTRAP'
expect 'main () at .*look.c:17'
