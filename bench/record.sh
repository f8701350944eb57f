#!/bin/sh
# record.sh - what it costs to record an operation of a step, and a collective in the flight
# recorder, in nanoseconds.
. "$(dirname "$0")/lib.sh"
bench_begin record

"$bench_bin/bench_record" "$bench_work" >"$bench_work/out"
while IFS='	' read -r case ns; do
    bench_case "$case" ns "$ns"
done <"$bench_work/out"

bench_end
