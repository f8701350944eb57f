#!/bin/sh
# ctest: start=first timeout=180
# zero_bits_test.sh - models trained by tri_zero end with the weights, buffers and losses of tri_ddp, bit
# for bit.
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

ranks=

# compare AT_LEAST COPIES TEXT TEXT: all stages with tri_ddp.
compare() {
    train 0 0 "$3" "$4" >"$work/all"
    for stage in 1 2 3; do
        train $stage "$2" "$3" "$4" >"$work/zero"
        cp "$work/all" "$work/ddp"
        # Hooks that need all gradients at once go with stage 1 alone.
        [ $stage -eq 1 ] || sed -i '/power sgd\|own hook/d' "$work/ddp" "$work/zero"
        n=$(wc -l <"$work/ddp")
        [ "$n" -ge "$1" ] || { echo "zero_bits_test: $n cases of $3$4" >&2; exit 1; }
        cmp -s "$work/ddp" "$work/zero" || {
            echo "zero_bits_test: stage $stage differs from tri_ddp:" >&2
            ! diff "$work/ddp" "$work/zero" >&2
            exit 1
        }
    done
}

compare 60 0 ': 3 shm' ''
# Clipping, a scaler, f16 and bf16, uneven batches, join, recomputation; and parameters without gradients.
for way in ': 2 shm' ': 6 shm' ': 4 tcp'; do
    compare 8 0 gpt "$way"
    compare 2 0 branches "$way"
done
ranks='--ranks 8'
compare 8 0 gpt ''
ranks=
# Over meshes of 2 x 2 and 3 x 2 ranks: the axis that divides has a power of two of them.
compare 8 2 gpt ': 4 shm'
compare 8 3 'batch norm' ': 6 shm'
# With 16 bits it may have any number: sums are rounded once, over all ranks.
compare 5 2 'f16 hook' ': 6 shm'
