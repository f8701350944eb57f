#!/bin/sh
# trainer_step.sh - what tri_fit adds to a step, with its default logging: against the loop that a program would
# write, in turns within one process; the toy model of toy_step.sh, and a convolutional network.
. "$(dirname "$0")/lib.sh"
bench_begin trainer_step

for model in toy images; do
    "$bench_bin/bench_trainer_step" $model "$bench_work/runs" 2>"$bench_work/log" >"$bench_work/times" || {
        cat "$bench_work/log" >&2
        exit 1
    }
    read -r fit plain <"$bench_work/times"
    bench_case "$model, a step" us "$fit" "$plain" "the plain loop"
done
bench_end
