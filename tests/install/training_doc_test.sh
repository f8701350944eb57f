#!/bin/sh
# training_doc_test.sh - docs/TRAINING.md and PARALLEL.md: their snippets compile without a warning
# and run, and every tri_ name in them is in a public header.
#
# Snippets of a section are one function, in their order; one that begins with "static" or "typedef"
# comes before it, and one of an #include alone at the top.
set -eu
include=$TRI_TEST_SOURCE/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check_doc NAME SECTIONS: its snippets, of at least so many sections, become $work/NAME and run.
check_doc() {
    doc=$TRI_TEST_SOURCE/docs/$1.md
    awk -v name="$1" -v least="$2" '
        function flush_section() {
            if (body != "")
                printf "%sstatic void section_%d(void)\n{\n%s}\n\n", before, n, body
            n += body != ""
            before = body = ""
        }
        /^## / { flush_section() }
        /^```c$/ { inside = 1; first = 1; next }
        /^```$/ && inside { inside = 0; next }
        inside {
            if (first) {
                outside = /^(static|typedef) /
                skip = /^#include/
                first = 0
            }
            line = sprintf("#line %d \"docs/%s.md\"\n%s\n", FNR, name, $0)
            if (skip) ;
            else if (outside) before = before line
            else body = body line
        }
        END {
            flush_section()
            print "int main(void)\n{"
            for (i = 0; i < n; i++)
                printf "    section_%d();\n", i
            print "    return 0;\n}"
            if (n < least) {
                print "training_doc_test: " name ": only " n " sections have snippets" >"/dev/stderr"
                exit 1
            }
        }' "$doc" >"$work/sections"
    {
        printf '#include <stdio.h>\n\n#include <trireme/trireme.h>\n\n'
        sed "s|/tmp/trireme-docs|$work/trireme-docs|" "$work/sections"
    } >"$work/$1.c"
    library=$(dirname "$TRI_TEST_BIN")/lib
    sanitize=${TRI_TEST_SANITIZE:+-fsanitize=$TRI_TEST_SANITIZE}
    ${CC:-cc} -std=gnu17 -Wall -Wextra -Werror $sanitize -I "$include" "$work/$1.c" -o "$work/$1" \
        -L "$library" -Wl,-rpath,"$library" -ltrireme -ltrireme-comm -lm
    "$work/$1" >"$work/out" 2>"$work/err" || {
        cat "$work/out" "$work/err"
        exit 1
    }
    if [ -s "$work/err" ]; then
        echo "the snippets wrote to stderr:"
        cat "$work/err"
        exit 1
    fi
    unknown=$(grep -oE '\b(tri|TRI)_[A-Za-z0-9_]+' "$doc" | sort -u | while read -r name; do
        case $name in
        *_ | TRI_BREAK | TRI_CHECK | TRI_EAGER | TRI_ISA | TRI_LOG | TRI_TRACE) continue ;; # a beginning; variables of the environment
        esac
        grep -rqw -- "$name" "$include" || echo "$name"
    done)
    [ -z "$unknown" ] || {
        echo "docs/$1.md names what no public header has:" $unknown
        exit 1
    }
}

check_doc PARALLEL 3
check_doc TRAINING 8
for text in "Sequential(" "tensor(\[20.0855" "step 10: loss" "batch of 2" "tensor(\[12" "^cpu:0" "tri_matmul(f32 \[2, 3\], f32 \[2, 3\])"; do
    grep -q "$text" "$work/out" || {
        echo "\"$text\" is missing in what the snippets wrote:"
        cat "$work/out"
        exit 1
    }
done

TRI_LOG=plan:debug "$work/TRAINING" >/dev/null 2>"$work/err"
for text in "operations in .* bytes copied" " view %.*@strided" " copy %.*@strided"; do
    grep -q "$text" "$work/err" || {
        echo "\"$text\" is missing in what plans log:"
        cat "$work/err"
        exit 1
    }
done
echo "ok"
