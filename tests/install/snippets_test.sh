#!/bin/sh
# snippets_test.sh - README, the guides and docs/FROM_TUTORIALS.md against an installed tree: each C
# snippet compiles without a warning, what can run alone runs, every name of ours in them is in a
# public header, and trirun takes the launch lines of FROM_TUTORIALS.md.
#
# A block with a main is a program. The others of a section are one function, in their order; one
# that begins with "static" or "typedef" stands before it, and one of an #include alone at the top.
# ctest: start=first timeout=180
set -eu
LC_ALL=C
export LC_ALL
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-snippets.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
prefix=$work/installed

fail() {
    echo "snippets_test: $*" >&2
    exit 1
}

cmake --install "$(dirname "$TRI_TEST_BIN")" --prefix "$prefix" >"$work/install.log" || fail "$(cat "$work/install.log")"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name trireme-models.pc)")
export PKG_CONFIG_PATH

# No link of an installed page leads out of what was installed.
find "$prefix/share/doc" -name '*.md' >"$work/pages"
[ "$(wc -l <"$work/pages")" -gt 5 ] || fail "few pages: $(cat "$work/pages")"
while IFS= read -r page; do
    grep -oE '\]\([^() ]+\)' "$page" | sed -E 's/^\]\(([^#]*).*\)$/\1/' | sort -u | while IFS= read -r target; do
        case $target in [a-z]*:*) continue ;; esac
        [ -e "$(dirname "$page")/$target" ] || echo "${page#"$prefix"/}: ($target)"
    done
done <"$work/pages" >"$work/links"
[ ! -s "$work/links" ] || fail "links that lead nowhere: $(cat "$work/links")"

# compile SOURCE PROGRAM
compile() {
    # shellcheck disable=SC2046,SC2086 # flags
    ${CC:-cc} -std=gnu17 -Wall -Wextra -Werror ${TRI_TEST_SANITIZE:+-fsanitize=$TRI_TEST_SANITIZE} \
        "$1" -o "$2" $(pkg-config --cflags --libs trireme-models) -lm \
        -Wl,-rpath,"$(pkg-config --variable=libdir trireme)" || fail "see above: does not compile"
}

# quietly COMMAND...: its output is in $work/out; it says nothing on stderr.
quietly() {
    "$@" >"$work/out" 2>"$work/err" || fail "$*: $(cat "$work/out" "$work/err")"
    [ ! -s "$work/err" ] || fail "$* wrote to stderr: $(cat "$work/err")"
}

# printed TEXT...: the last command did.
printed() {
    for text; do
        grep -q -e "$text" "$work/out" || fail "\"$text\" is missing in: $(cat "$work/out")"
    done
}

# take_apart DOCUMENT NAME: $work/NAME.c is its sections, $work/NAME-LINE.c each program;
# $work/NAME.count is "SECTIONS PROGRAMS".
take_apart() {
    awk -v document="$1" -v at="$work/$2" '
        function flush_section() {
            if (body != "")
                sections = sections before "static void section_" n++ "(void)\n{\n" body "}\n\n"
            before = body = ""
        }
        function flush_block() {
            if (block ~ /(^|\n)int main\(/) {
                file = sprintf("%s-%04d.c", at, start) # in their order
                printf "#line %d \"%s\"\n%s", start + 1, document, block >file
                close(file)
                programs++
            } else if (block ~ /^TRII_EW_/) { # of the library itself: scripts/check_docs
            } else if (block ~ /^#include[^\n]*\n$/) {
                includes = includes block
            } else {
                block = sprintf("#line %d \"%s\"\n%s", start + 1, document, block)
                if (block ~ /^[^\n]*\n(static|typedef) /) before = before block "\n"
                else body = body block
            }
        }
        /^## / { flush_section() }
        /^```c$/ { inside = 1; start = FNR; block = ""; next }
        /^```$/ && inside { inside = 0; flush_block(); next }
        inside { block = block $0 "\n" }
        END {
            flush_section()
            main = "int main(void)\n{\n"
            for (i = 0; i < n; i++) main = main "    section_" i "();\n"
            printf "#include <stdio.h>\n\n%s#include <trireme/trireme.h>\n\n%s%s    return 0;\n}\n", includes,
                sections, main >(at ".c")
            print n + 0, programs + 0 >(at ".count")
        }' "$TRI_TEST_SOURCE/$1"
    for source in "$work/$2.c" "$work/$2"-*.c; do
        [ -f "$source" ] || continue
        sed "s|/tmp/trireme-docs|$work/trireme-docs|" "$source" >"$source.new"
        mv "$source.new" "$source"
    done
}

# check DOCUMENT SECTIONS PROGRAMS [internal]: it has at least so many; all compile, and the sections
# run. Documents of the library's insides name what no public header has.
check() {
    name=$(basename "$1" .md)
    take_apart "$1" "$name"
    read -r sections programs <"$work/$name.count"
    [ "$sections" -ge "$2" ] && [ "$programs" -ge "$3" ] ||
        fail "$1: only $sections sections with snippets and $programs programs were found"
    if [ "$sections" -gt 0 ]; then
        compile "$work/$name.c" "$work/$name"
        quietly "$work/$name"
        cp "$work/out" "$work/$name.out"
    fi
    for source in "$work/$name"-*.c; do
        [ ! -f "$source" ] || compile "$source" "${source%.c}"
    done
    [ $# -eq 3 ] || return 0
    unknown=$(grep -oE '\b(tri|TRI)_[A-Za-z0-9_]+' "$TRI_TEST_SOURCE/$1" | sort -u | while read -r word; do
        case $word in
        *_) continue ;; # a beginning
        esac
        grep -rqw -e "$word" "$prefix/include" "$work/settings" || echo "$word"
    done)
    [ -z "$unknown" ] || fail "$1 names what no public header has: $(echo "$unknown" | tr '\n' ' ')"
}

# Variables of the environment are no names of headers: the settings, and what trirun tells workers.
"$prefix/bin/trireme" info >"$work/settings"
echo "TRI_RUN_DIR TRI_NEW_STORE TRI_ENGINES" >>"$work/settings"
trirun="$prefix/bin/trirun --standalone --nproc-per-node 2"
cd "$work" # where snippets write files

check_rpc() {
    check docs/RPC.md 4 4
    cp "$work/RPC.out" "$work/out"
    printed "^2 squared is 4$" "^counted to 2 on owner$" "^their sum is 524288$" "^the weight is -0.2$"
    for program in "$work"/RPC-*[0-9]; do
        quietly "$prefix/bin/trirun" --standalone --nproc-per-node 3 "$program"
        cat "$work/out" >>"$work/RPC.out"
    done
    cp "$work/RPC.out" "$work/out"
    printed "^worker1 says 42$" "^400 updates: 1.00 -2.00 3.00$" "^30 gradients$" "^rank 1: loss 0.0" "^rank 2: loss 0.0"
}

# For races only where the snippets' own functions run in several threads and change what they share;
# the threads of the library are looked at in the tests of its rooms.
if [ "${TRI_TEST_SANITIZE:-}" = thread ]; then
    check_rpc
    echo "snippets_test: passed"
    exit 0
fi

check docs/PARALLEL.md 3 0
check docs/TRAINING.md 8 0
cp "$work/TRAINING.out" "$work/out"
printed "Sequential(" "tensor(\[20.0855" "step 10: loss" "batch of 2" "tensor(\[12" "^cpu:0" \
    "tri_matmul(f32 \[2, 3\], f32 \[2, 3\])"
TRI_LOG=plan:debug "$work/TRAINING" >"$work/stdout" 2>"$work/out"
printed "operations in .* bytes copied" " view %.*@strided" " copy %.*@strided"

check README.md 0 2
set -- "$work"/README-*[0-9]
quietly $trirun "$1"
printed "^rank 1 of 2: 0.5$"
for start in "$2" "$trirun $2"; do # its losses fall
    quietly $start
    awk '/^step/ { loss[++n] = $NF } END { exit !(n == 6 && loss[n] < loss[1] / 20) }' "$work/out" ||
        fail "README's losses do not fall: $(cat "$work/out")"
done

check docs/USING.md 0 2
for program in "$work"/USING-*[0-9]; do
    quietly "$program"
done
check docs/FROM_TUTORIALS.md 11 2
printed_before=$(cat "$work/FROM_TUTORIALS.out")
quietly $trirun "$work/FROM_TUTORIALS" # the sections as two workers
set -- "$work"/FROM_TUTORIALS-*[0-9]
quietly "$1"
printed "^rank 0 of 2 has finished$" "^rank 1 of 2 has finished$"
quietly "$2"
printed "^Training is ending$" "^4 epochs, val_loss 0.0"
echo "$printed_before" >"$work/out"
printed "^\[20, 5\] on cpu:0$" "^Outside: input size \[30, 5\] output_size \[30, 2\]$" "^  (module): Sequential("
quietly env TRI_CPU_DEVICES=2 "$work/FROM_TUTORIALS"
printed "^\[20, 5\] on cpu:1$" "^Let's use 2 devices!$"
check_rpc
check docs/DEEPSPEED.md 0 0
check examples/README.md 0 0
for name in ARCHITECTURE DEVICES STYLE TORCHRUN; do
    check docs/$name.md 0 0 internal
done
for document in "$TRI_TEST_SOURCE"/docs/*.md; do
    [ -f "$work/$(basename "$document" .md).count" ] || fail "$document is not checked here"
done

# The right column of the launch lines.
: >"$work/train"
chmod +x "$work/train"
for program in elastic_ddp imagenet classy_train; do cp "$work/train" "$work/$program"; done
sed -n 's/^| `.*| `\(trirun[a-z-]* .*\)` |$/\1/p' "$TRI_TEST_SOURCE/docs/FROM_TUTORIALS.md" >"$work/lines"
[ "$(wc -l <"$work/lines")" -ge 5 ] || fail "FROM_TUTORIALS.md has no launch lines"
MASTER_ADDR=localhost
export MASTER_ADDR
while read -r program arguments; do
    case $arguments in
    *etcd*) [ -n "$(find "$prefix" -name rendezvous-etcd.so)" ] || continue ;; # not built here
    esac
    eval "quietly \"\$prefix/bin/$program\" --dry-run $arguments"
done <"$work/lines"
echo "snippets_test: passed"
