#!/bin/sh
# consumer_test.sh - what `cmake --install` puts down is all that a stranger's project needs: C and
# C++17, by pkg-config and by find_package, shared and static, after the tree was moved.
# ctest: start=first labels=full timeout=300
set -eu
LC_ALL=C
export LC_ALL
source=$TRI_TEST_SOURCE/tests/install/consumer
build=$(dirname "$TRI_TEST_BIN")
cc=${CC:-cc} cxx=${CXX:-c++}
sanitize=${TRI_TEST_SANITIZE:+-fsanitize=$TRI_TEST_SANITIZE}
warnings="-Wall -Wextra -Wpedantic -Werror"
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    echo "consumer_test: $*" >&2
    exit 1
}

# works PROGRAM TEXT: it runs and prints the text.
works() {
    output=$("$1") || fail "$1 failed: $output"
    case $output in
    *"$2"*) ;;
    *) fail "$1 printed: $output" ;;
    esac
}

# Installed to one place and used from another.
cmake --install "$build" --prefix "$work/there" >"$work/install.log"
mv "$work/there" "$work/here"
prefix=$work/here
libdir=$(dirname "$(find "$prefix" -name libtrireme-comm.so)")

for file in bin/trirun bin/trirun-launch bin/trireme include/trireme/comm.h include/trireme/trireme.h \
    share/man/man1/trirun.1 share/man/man1/trireme.1 share/man/man3/tri_all_reduce.3 \
    share/man/man7/trireme.7 share/doc/trireme/docs/TRAINING.md share/doc/trireme/examples/README.md; do
    [ -f "$prefix/$file" ] || fail "$file was not installed"
done
for header in "$TRI_TEST_SOURCE"/include/trireme/*.h; do
    cmp "$header" "$prefix/include/trireme/${header##*/}" || fail "${header##*/} differs"
done
# Texts that name folders of the build would break on another machine. A tree may lie in
# /trireme, which also ends many a path within the prefix: only what begins there counts. Guides are
# as they were written, and some speak of a /trireme.
if grep -rlE --exclude-dir=doc "(^|[^[:alnum:]_.}-])($TRI_TEST_SOURCE|$work/there)" "$prefix/include" "$prefix/share" \
    $(find "$prefix" -name '*.pc' -o -name '*.cmake') >"$work/absolute"; then
    fail "absolute folders in: $(cat "$work/absolute")"
fi

# --- pkg-config -------------------------------------------------------------------------
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
for language in c cpp; do
    case $language in
    c) compile="$cc -std=c11" ;;
    cpp) compile="$cxx -std=c++17" ;;
    esac
    for pair in average:trireme-comm fit:trireme classify:trireme-models; do
        name=${pair%:*} module=${pair#*:}
        # shellcheck disable=SC2046
        $compile $warnings $sanitize "$source/$name.$language" $(pkg-config --cflags --libs "$module") \
            -Wl,-rpath,"$libdir" -o "$work/$name-$language"
        static=$(pkg-config --static --libs "$module" |
            sed 's/-ltrireme[a-z-]*/-Wl,-Bstatic & -Wl,-Bdynamic/g')
        # shellcheck disable=SC2046
        $compile $warnings $sanitize "$source/$name.$language" $(pkg-config --cflags "$module") $static \
            -o "$work/$name-$language-static"
        if readelf -d "$work/$name-$language-static" | grep -q 'NEEDED.*libtrireme'; then
            fail "$name-$language-static loads a library of this project"
        fi
    done
    works "$work/average-$language" "average of 1 on rank 0"
    works "$work/average-$language-static" "average of 1 on rank 0"
    works "$work/fit-$language" trained
    works "$work/fit-$language-static" trained
    works "$work/classify-$language" "logits [2, 10]"
    works "$work/classify-$language-static" "logits [2, 10]"
done

# The command lines of the manual give programs that start as they are.
mkdir "$work/manual"
cp "$source/average.c" "$work/manual/"
sed -n '/^cc average.c .*--libs trireme-comm) /,/-o average$/p' "$TRI_TEST_SOURCE/docs/USING.md" |
    sed "s|^cc |$cc $sanitize |" >"$work/manual/lines"
grep -q -e '-o average$' "$work/manual/lines" || fail "docs/USING.md does not say how to link"
(cd "$work/manual" && . ./lines) || fail "the command line of docs/USING.md fails"
works "$work/manual/average" "average of 1 on rank 0"
cp "$source/fit.c" "$work/manual/"
sed -n '/^cc fit.c /,/-o fit /p' "$TRI_TEST_SOURCE/docs/USING.md" | sed "s|^cc |$cc $sanitize |" >"$work/manual/lines"
grep -q -e '-o fit ' "$work/manual/lines" || fail "docs/USING.md does not say how to link libtrireme statically"
(cd "$work/manual" && . ./lines) || fail "the static command line of docs/USING.md fails"
! readelf -d "$work/manual/fit" | grep -q 'NEEDED.*libtrireme' || fail "it loads a library of this project"
works "$work/manual/fit" trained

# So does the one of examples/README.md, for each tutorial's file alone.
for tutorial in "$prefix"/share/doc/trireme/examples/tutorials/*.c; do
    name=$(basename "$tutorial" .c)
    package=trireme
    ! grep -q '<trireme/models.h>' "$tutorial" || package=trireme-models
    # shellcheck disable=SC2046
    $cc -std=c11 $warnings $sanitize "$tutorial" $(pkg-config --cflags --libs $package) \
        -Wl,-rpath,"$(pkg-config --variable=libdir trireme)" -lm -o "$work/$name"
done
works "$work/elastic_ddp" "Finished running basic DDP example on rank 0."

# --- dlopen -----------------------------------------------------------------------------
# shellcheck disable=SC2086
$cc -std=c11 $warnings $sanitize "$source/load.c" -ldl -o "$work/load"
"$work/load" "$libdir/libtrireme-comm.so" "$libdir/libtrireme.so" >"$work/loaded" || fail "$(cat "$work/loaded")"
grep -q '^loaded 2$' "$work/loaded" || fail "load printed: $(cat "$work/loaded")"

# --- CMake ------------------------------------------------------------------------------
cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_FLAGS="$warnings $sanitize" \
    -DCMAKE_CXX_FLAGS="$warnings $sanitize" >"$work/cmake.log" 2>&1 || fail "$(cat "$work/cmake.log")"
cmake --build "$work/build" -j 2 >"$work/cmake.log" 2>&1 || fail "$(cat "$work/cmake.log")"
for kind in c cpp c_static cpp_static; do
    works "$work/build/average_$kind" "average of 1 on rank 0"
    works "$work/build/fit_$kind" trained
    works "$work/build/classify_$kind" "logits [2, 10]"
done
# Another version is refused, not taken for this one.
mkdir "$work/other"
cat >"$work/other/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(other LANGUAGES C)
find_package(trireme 9.0 REQUIRED)
END
if cmake -S "$work/other" -B "$work/other/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" 2>&1; then
    fail "version 9.0 was found"
fi
grep -q 'version: 0' "$work/cmake.log" || fail "$(cat "$work/cmake.log")"
# So is a component that there is not, and those that there are are named.
sed -i 's/9.0 REQUIRED/REQUIRED COMPONENTS comm rpc/' "$work/other/CMakeLists.txt"
if cmake -S "$work/other" -B "$work/other/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" 2>&1; then
    fail "component rpc was found"
fi
grep -q 'its components are comm, trireme and models, not rpc' "$work/cmake.log" || fail "$(cat "$work/cmake.log")"

# --- the installed programs -------------------------------------------------------------
"$prefix/bin/trirun" --standalone --nproc-per-node 2 "$work/average-c" >"$work/two"
[ "$(grep -c 'average of 2 on rank' "$work/two")" -eq 2 ] || fail "trirun: $(cat "$work/two")"
"$prefix/bin/trireme" info >"$work/info"
grep -q '^shm  *yes' "$work/info" || fail "trireme info: $(cat "$work/info")"
echo "consumer_test: passed"
