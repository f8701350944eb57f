#!/bin/sh
# manual_test.sh - every public function and macro has a manual page with its declaration in the
# synopsis, `man` finds it, and no page makes the
# formatter complain.
# ctest: labels=full timeout=300
set -eu
LC_ALL=C
export LC_ALL
man=$(dirname "$TRI_TEST_BIN")/man
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-manual.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() {
    echo "manual_test: $*" >&2
    exit 1
}

cd "$man"
pages=$(grep -L '^\.so ' man*/*) # the rest are other names of them
groff -ww -man -Tutf8 -z $pages >"$work/complaints" 2>&1 || true
[ ! -s "$work/complaints" ] || fail "$(head -n 3 "$work/complaints")"
for page in man1/* man7/*; do
    grep -q '^\.SH NAME$' "$page" || fail "$page has no name"
done
for page in man*/*; do
    target=$(sed -n 's/^\.so //p' "$page")
    [ -f "${target:-$page}" ] || fail "$page leads to $target, which is not there"
done

lib=$(dirname "$TRI_TEST_BIN")/lib
for library in libtrireme-comm libtrireme libtrireme-models; do
    nm -D --defined-only "$lib/$library.so" | sed -n 's/.* T \(tri_[a-z0-9_]*\)@@TRIREME_0$/\1/p'
done >"$work/functions"
[ "$(wc -l <"$work/functions")" -gt 100 ] || fail "too few functions were found"
while read -r function; do
    page=man3/$function.3
    [ -f "$page" ] || fail "$function has no page"
    target=$(sed -n 's/^\.so //p' "$page")
    grep -qF "$function" "${target:-$page}" || fail "${target:-$page} does not show $function"
done <"$work/functions"

# Macros that programs write, too. The synopsis of each declares what the page is called.
grep -hoE '^#define (tri_[a-z0-9_]+|TRI_[A-Z_]*[A-Z])\(' "$TRI_TEST_SOURCE"/include/trireme/[!oe]*.h |
    sed 's/^#define //; s/($//' | sort -u >"$work/macros"
grep -qx tri_nn_sequential "$work/macros" && grep -qx TRI_SHAPE "$work/macros" || fail "too few macros were found"
sort -u "$work/functions" "$work/macros" | while read -r name; do
    [ -f "man3/$name.3" ] || {
        echo "$name has no page"
        continue
    }
    target=$(sed -n 's/^\.so //p' "man3/$name.3")
    sed -n '/^\.SH SYNOPSIS/,/^\.SH DESCRIPTION/p' "${target:-man3/$name.3}" |
        grep -qE "(^|[ *(])$name\(" || echo "${target:-man3/$name.3} does not declare $name in its synopsis"
done >"$work/undeclared"
[ ! -s "$work/undeclared" ] || fail "$(head -n 5 "$work/undeclared")"
for page in man3/tri_nn_sequential.3:tri_nn_sequential_of man3/TRI_SHAPE.3:tri_tensor; do
    target=$(sed -n 's/^\.so //p' "${page%:*}")
    grep -q "${page#*:}" "${target:-${page%:*}}" || fail "${page%:*} does not lead to ${page#*:}"
done

# Options are on the page of the call that takes them, or it says where.
for page in man3/*.3; do
    grep -q '^\.so ' "$page" && continue
    sed -n '/^\.SH SYNOPSIS/,/^\.SH DESCRIPTION/p' "$page" | grep -oE 'const tri_[a-z0-9_]+_options \*' |
        sort -u | while read -r _ options _; do
        grep -qE "^\} $options;|^\.BR $options \(3\)" "$page" || echo "$page takes $options and does not show it"
        taker=$(sed -n 's/^\.so //p' "man3/$options.3") # none: a page of its own
        [ -z "$taker" ] || grep -qF "$options *" "$taker" || echo "$options leads to $taker, which does not take it"
    done
done >"$work/hidden"
[ ! -s "$work/hidden" ] || fail "$(head -n 5 "$work/hidden")"

# What a page says is what the header says.
groff -man -Tascii -P-c -P-b -P-u man3/tri_all_reduce.3 >"$work/page"
grep -q 'tri_status tri_all_reduce(tri_group \*group, const void \*src, void \*dst,' "$work/page" ||
    fail "tri_all_reduce(3) does not declare it"
grep -q 'dst\[i\] = op over ranks r of src_r\[i\]' "$work/page" ||
    fail "tri_all_reduce(3) does not say what it does"
grep -qE '^ {29,}size_t count, tri_dtype dtype, tri_redop op,$' "$work/page" &&
    grep -qE '^ {29,}int root, tri_work \*\*work_out\);$' "$work/page" ||
    fail "tri_all_reduce(3) does not lay out tri_reduce: $(cat "$work/page")"
groff -man -Tascii -P-c -P-b -P-u man3/tri_ddp_join.3 >"$work/join"
grep -qE '^ {31}tri_tensor \*\(\*loss\)\(void \*arg\),$' "$work/join" ||
    fail "tri_ddp_join(3) does not lay out a function among its arguments: $(cat "$work/join")"
! grep -l '^;$' man3/* || fail "a declaration ends on a line of its own"
# The summary is the whole first sentence.
for name in 'tri_randint \\- Uniform whole numbers low .. high' 'tri_status_name .*, e.g. "PEER_LOST"$' \
    'tri_optimizer_schedule \\- .* makes of the rate'; do
    page=${name%% *}
    grep -q "^$name" "man3/$page.3" || fail "$page(3) is cut short: $(sed -n '/^\.SH NAME/,+1p' "man3/$page.3")"
done
! grep -q 'tri_group_split' "$work/page" || fail "tri_all_reduce(3) is about other functions too"
tr -s ' \n' '  ' <"$work/page" | tr -s ' ' | grep -q 'MISMATCH (names both calls)' || # over two lines, perhaps
    fail "tri_all_reduce(3) names no errors"
[ "$(wc -l <"$work/page")" -lt 80 ] || fail "tri_all_reduce(3) is too long"
groff -man -Tascii -P-c man1/trirun.1 | grep -q 'nproc-per-node' || fail "trirun(1) has no options"

# A terminal of 80 columns shows them whole.
for page in man1/* man3/tri_all_gather.3 man3/tri_group.3 man3/tri_loader_options.3 man3/TRI_TRY.3; do
    groff -man -Tascii -P-c -P-b -P-u -rLL=79n "$page" | awk 'length($0) > 80' >"$work/long"
    [ ! -s "$work/long" ] || fail "$page is too wide: $(head -n 1 "$work/long")"
done
groff -man -Tascii -P-c -P-b -P-u man3/TRI_TRY.3 | grep -q 'define TRI_TRY(call)$' ||
    fail "TRI_TRY(3) does not show how it is written"
echo "manual_test: passed"
