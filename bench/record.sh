#!/bin/sh
# record.sh - what it costs to record an operation, in nanoseconds.
. "$(dirname "$0")/lib.sh"
bench_begin record

"$bench_bin/bench_record" >"$bench_work/out"
while IFS='	' read -r case ns; do
    bench_case "$case" ns "$ns"
done <"$bench_work/out"

bench_end
