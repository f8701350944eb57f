#!/bin/sh
# two_devices.sh - two independent halves of a model on two cpu devices against one after the other on
# one: milliseconds of a training step, and how many times faster.
. "$(dirname "$0")/lib.sh"
bench_begin queues

"$bench_bin/bench_queues" "$bench_work" >"$bench_work/out"
while IFS='	' read -r case unit value; do
    bench_case "$case" "$unit" "$value"
done <"$bench_work/out"

bench_end
