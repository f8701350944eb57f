#!/bin/sh
# ctest: start=first timeout=180
# zero_bits_test.sh - models trained by tri_zero end with the weights, buffers and losses of tri_ddp, bit
# for bit: all of them on three ranks. zero_bits_full_test.sh has the other ways.
. "${0%/*}/zero_bits.sh"

compare 60 0 ': 3 shm' ''
