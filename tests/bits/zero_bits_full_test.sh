#!/bin/sh
# ctest: labels=full timeout=300 tsan=no
# zero_bits_full_test.sh - what zero_bits_test.sh compares, on other numbers of ranks, over another engine
# and over meshes. Of threads it shows no more than that.
. "${0%/*}/zero_bits.sh"

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
