#!/bin/sh
# checkpoint.sh - what an asynchronous save of 500 MB costs training: the step that saves, against a
# copy of the state by memcpy in the same run, and the steps while it is written, against the
# processor time of the thread that writes.
. "$(dirname "$0")/lib.sh"
bench_begin checkpoint

"$bench_bin/bench_saving" "$bench_work/checkpoints" "$(full_or 9 5)" >"$bench_work/out"
while IFS='	' read -r case unit ours peer name; do
    bench_case "$case" "$unit" "$ours" "$peer" "$name"
done <"$bench_work/out"

bench_end
