#!/bin/sh
# zero_bits.sh - for scripts that hold models trained by tri_zero against those of tri_ddp: weights, buffers
# and losses have to be equal, bit for bit. Tests only.
set -eu
bits=${TRI_TEST_BIN%/*}/test/bits
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-zero.XXXXXX")
trap 'rm -rf "$work"' EXIT

# train STAGE COPIES TEXT [TEXT]: what all must have in common. Later unfreezing is refused, and gradients are
# read by tri_ddp's alone.
train() {
    "$bits" $ranks --zero "$1" --replicas "$2" "$3" "$4" |
        sed '/frozen\|are read/d; s/ optimizer [^ ]* gradients [^ ]*//'
}

ranks= # an option of bits

# compare AT_LEAST COPIES TEXT TEXT: all stages with tri_ddp.
compare() {
    train 0 0 "$3" "$4" >"$work/all"
    for stage in 1 2 3; do
        train $stage "$2" "$3" "$4" >"$work/zero"
        cp "$work/all" "$work/ddp"
        # Hooks that need all gradients at once go with stage 1 alone.
        [ $stage -eq 1 ] || sed -i '/power sgd\|own hook/d' "$work/ddp" "$work/zero"
        n=$(wc -l <"$work/ddp")
        [ "$n" -ge "$1" ] || { echo "zero_bits: $n cases of $3$4" >&2; exit 1; }
        cmp -s "$work/ddp" "$work/zero" || {
            echo "zero_bits: stage $stage differs from tri_ddp:" >&2
            ! diff "$work/ddp" "$work/zero" >&2
            exit 1
        }
    done
}
