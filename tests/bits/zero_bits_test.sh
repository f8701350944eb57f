#!/bin/sh
# zero_bits_test.sh - models trained by tri_zero end with the weights, buffers and losses of tri_ddp, bit
# for bit.
set -eu
bits=${TRI_TEST_BIN%/*}/test/bits
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-zero.XXXXXX")
trap 'rm -rf "$work"' EXIT

# train STAGE COPIES TEXT: what all must have in common. Later unfreezing is refused, and gradients are
# read by tri_ddp's alone.
train() {
    "$bits" --zero "$1" --replicas "$2" "$3" |
        sed '/frozen\|are read/d; s/ optimizer [^ ]* gradients [^ ]*//'
}

# compare TEXT AT_LEAST [COPIES]: stages 1 and 2 with tri_ddp.
compare() {
    train 0 0 "$1" >"$work/all"
    for stage in 1 2; do
        train $stage "${3:-0}" "$1" >"$work/zero"
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
# Over meshes of 2 x 2 and 3 x 2 ranks: the axis that divides has a power of two of them.
for name in 'gpt, f16 and scaler, clipped' 'batch norm shared, uneven' 'branches, clipped, small buckets' \
    'mlp, two batches' 'mlp, no_sync' 'wide, f16 hook, small buckets'; do
    compare "$name: 4 shm" 1 2
    compare "$name: 6 shm" 1 3
done
