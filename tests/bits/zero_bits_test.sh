#!/bin/sh
# zero_bits_test.sh - models trained by tri_zero end with the weights, buffers and losses of tri_ddp, bit
# for bit.
set -eu
bits=${TRI_TEST_BIN%/*}/test/bits
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-zero.XXXXXX")
trap 'rm -rf "$work"' EXIT

# train STAGE TEXT: what both must have in common. Later unfreezing is refused, and gradients are read by
# tri_ddp's alone.
train() {
    "$bits" --zero "$1" "$2" |
        sed '/frozen\|are read/d; s/ optimizer [^ ]* gradients [^ ]*//'
}

# compare TEXT AT_LEAST: stages 1 and 2 with tri_ddp.
compare() {
    train 0 "$1" >"$work/all"
    for stage in 1 2; do
        train $stage "$1" >"$work/zero"
        cp "$work/all" "$work/ddp"
        # Hooks that need all gradients at once go with stage 1 alone.
        [ $stage -eq 1 ] || sed -i '/power sgd\|own hook/d' "$work/ddp" "$work/zero"
        n=$(wc -l <"$work/ddp")
        [ "$n" -ge "$2" ] || { echo "zero_bits_test: $n cases of$1" >&2; exit 1; }
        cmp -s "$work/ddp" "$work/zero" || {
            echo "zero_bits_test: stage $stage differs from tri_ddp:" >&2
            ! diff "$work/ddp" "$work/zero" >&2
            exit 1
        }
    done
}

compare ': 3 shm' 60
# All with "gpt" in the name: clipping, a scaler, f16 and bf16, uneven batches, join, recomputation.
for way in '2 shm' '4 shm' '6 shm' '4 tcp'; do
    "$bits" --list | grep "^gpt.*: $way\$" >"$work/names"
    while read -r name; do
        compare "$name" 0
    done <"$work/names"
done
