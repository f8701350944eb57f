#!/bin/sh
# plain_numbers_test.sh - a number whose default is not 0 takes TRI_SET(x) wherever C and C++ allow a value,
# without a warning, and does not compile without it, so that no computed 0 is taken for a default.
# ctest: start=first timeout=120
set -eu
LC_ALL=C
export LC_ALL
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-numbers.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() {
    echo "plain_numbers_test: $*" >&2
    exit 1
}

# compiles LANGUAGE STANDARD COMPILER: a file of $work/body, with the warnings of careful programs. The
# headers are the system's, as after an installation.
compiles() {
    {
        echo '#include <trireme/trireme.h>'
        echo '#include <trireme/sync_batch_norm.h>'
        cat "$work/body"
    } >"$work/unit"
    "$3" -x "$1" -std="$2" -Wall -Wextra -Wconversion -Wmissing-braces -Werror \
        -Wno-missing-field-initializers -isystem "$TRI_TEST_SOURCE/include" -fsyntax-only "$work/unit" >"$work/says" 2>&1
}

good() {
    cat >"$work/body"
    compiles "$@" || fail "$3 -std=$2: $(head -n 3 "$work/says")"
}

# bad LANGUAGE STANDARD COMPILER STATEMENT
bad() {
    printf '%s\n' "void f(double x); void f(double x) { tri_adam_options o; (void)x; $4 (void)o; }" >"$work/body"
    if compiles "$1" "$2" "$3"; then fail "$3 -std=$2 compiles: $4"; fi
    grep -qiE 'tri_opt|const char' "$work/says" || fail "$3 -std=$2: $4: another error: $(head -n 3 "$work/says")"
}

run() { # LANGUAGE STANDARD COMPILER
    good "$@" <<'END'
#define DECAY 0.25
static const tri_opt alone = TRI_SET(DECAY);
double numbers(double x, int n);
double numbers(double x, int n)
{
    static tri_opt kept = TRI_SET(-DECAY);
    tri_adam_options o = {};
    tri_opt none = TRI_DEFAULT;

    o.beta1 = TRI_SET(x);
    o.eps = TRI_SET(n - 1);
    o.weight_decay = x > 0 ? TRI_SET(x * 2) : TRI_DEFAULT;
    kept = n > 1 ? o.eps : kept;
    (void)tri_rms_norm(NULL, n, NULL, TRI_SET(1e-6));
    (void)tri_rms_norm(NULL, n, NULL, TRI_DEFAULT);
    return alone.value + kept.value + o.beta1.value + none.value;
}
END
    bad "$@" 'o.weight_decay = 0.1;'
    bad "$@" 'o.weight_decay = x;'
    bad "$@" 'o.weight_decay = 0;'
    bad "$@" 'o.weight_decay = 0.0;'
    bad "$@" 'tri_opt n = 0.5; (void)n;'
    bad "$@" '(void)(tri_rms_norm)(NULL, 1, NULL, 0.1);'
    bad "$@" '(void)(tri_rms_norm)(NULL, 1, NULL, 0);'
}

ran=0
for pair in gcc:g++ clang:clang++; do
    command -v "${pair%:*}" >/dev/null && command -v "${pair#*:}" >/dev/null || continue
    run c gnu11 "${pair%:*}"
    run c gnu17 "${pair%:*}"
    run c++ gnu++11 "${pair#*:}"
    run c++ gnu++20 "${pair#*:}"
    # By the name of the field, where the language has that.
    for how in "c gnu11 ${pair%:*}" "c++ gnu++20 ${pair#*:}"; do
        # shellcheck disable=SC2086 # three words
        good $how <<'END'
static const tri_adam_options adam = {.beta2 = TRI_SET(0.95), .weight_decay = TRI_SET(0)};
const tri_adam_options *options(void);
const tri_adam_options *options(void)
{
    return &adam;
}
END
        # Not of the constant 0, which is a null pointer.
        for field in '.weight_decay = 0.1' '.weight_decay = x' '.weight_decay = 0.0' '.eps = 1'; do
            # shellcheck disable=SC2086
            bad $how "tri_adam_options p = {$field}; (void)p;"
        done
    done
    ran=$((ran + 1))
done
[ "$ran" -gt 0 ] || fail "there is neither gcc nor clang"
echo "plain_numbers_test: passed"
