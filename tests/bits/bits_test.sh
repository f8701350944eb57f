#!/bin/sh
# bits_test.sh - hashes of trained models come out the same again, by every engine, and ./run bits tells
# two of them apart.
set -eu
bits=${TRI_TEST_BIN%/*}/test/bits
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-bits.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() {
    echo "bits_test: $*" >&2
    exit 1
}

# train FILE TEXT: lines of the cases with this text.
train() {
    "$bits" "$2" >>"$1" || fail "$2: $(grep -F failed "$1")"
}

for text in 'branches, own hook' 'gpt, ignored targets, uneven' 'batch norm shared, join' \
    'wide, power sgd, small' 'deep, in stages, zero bubble' 'deep, in parts, recomputed'; do
    train "$work/first" "$text"
    train "$work/second" "$text"
done
[ "$(wc -l <"$work/first")" -eq 66 ] || fail "$(wc -l <"$work/first") lines, not of 6 cases 11 ways"
cmp "$work/first" "$work/second" || fail "not the same again"

# Sums have one order, whoever moves the bytes.
[ "$(sed 's/ [a-z]*: weights/ weights/' "$work/first" | sort -u | wc -l)" -eq 30 ] ||
    fail "engines differ: $(cat "$work/first")"

# expect TEXT: what comparing the first lines with the second must say, and that they differ.
expect() {
    ! bits_compare "$work/first" "$work/second" >"$work/said" || fail "no difference, instead of: $1"
    grep -qxF "$1" "$work/said" || fail "\"$1\" is missing in: $(cat "$work/said")"
}

. "$TRI_TEST_SOURCE/scripts/lib/bits.sh"
bits_compare "$work/first" "$work/second" >"$work/said" || fail "a difference: $(cat "$work/said")"
[ "$(cat "$work/said")" = "66 lines of both, 0 differ, failed or are missing" ] || fail "$(cat "$work/said")"
sed '5s/\(optimizer .*\)[0-7] gradients/\1x gradients/; 5s/\(optimizer .*\)[8-f] gradients/\1y gradients/' \
    "$work/first" >"$work/second"
expect "differs: branches, own hook: 6 shm: optimizer"
sed 7d "$work/first" >"$work/second"
expect "only in the old one: branches, own hook: 3 tcp"
sed '2s/weights .*/failed: no memory/' "$work/first" >"$work/second"
expect "failed (new): branches, own hook: 2 shm: failed: no memory"
: >"$work/second"
expect "there is nothing to compare"
cp "$work/first" "$work/second"
sed -i 3d "$work/first"
bits_compare "$work/first" "$work/second" >"$work/said" || fail "a new case is a difference: $(cat "$work/said")"
grep -qxF "only in the new one: branches, own hook: 3 shm" "$work/said" || fail "$(cat "$work/said")"
