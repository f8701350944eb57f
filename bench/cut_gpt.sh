#!/bin/sh
# cut_gpt.sh - a training step of a GPT (8 layers of width 384, batch 8) by one worker of one thread,
# and by two that cut the batch, the layers or the network into stages: milliseconds, and the memory
# of a worker, also as the table of docs/PARALLEL.md (build/bench/cut_gpt.md).
#
#     ./run bench cut_gpt
#
# ROUNDS (3) runs of each, TURNS (1) in each of them.
. "$(dirname "$0")/lib.sh"
bench_begin cut_gpt

rounds=${ROUNDS:-3}
turns=${TURNS:-$(full_or 5 1)}
ways="ddp zero1 zero2 zero3 tensor pipeline gpipe zero_bubble"
table=build/bench/cut_gpt.md
export TRI_NUM_THREADS=1
export TRI_LOG=error # one waits for long while the other trains alone

# row NAME TEXT: of the table.
row() {
    [ -s "$bench_work/$1" ] || return 0
    bench_case "$2" ms "$(column "$1" 2)"
    bench_case "$2, memory" MiB "$(column "$1" 5)"
    awk -v text="$2" -v ms="$(column "$1" 2)" -v alone="$(column one 2)" -v mib="$(column "$1" 5)" \
        'BEGIN { printf "| %s | %.0f | %.2f | %.0f |\n", text, ms, ms / alone, mib }' >>"$table"
}

bench_table() {
    {
        echo '| way | ms a step | of one worker'\''s | MiB of a worker |'
        echo '| --- | --- | --- | --- |'
    } >"$table"
    row one "one worker"
    row ddp "DDP"
    for stage in 1 2 3; do
        row zero$stage "ZeRO $stage"
    done
    row tensor "tensor parallelism"
    row gpipe "pipeline, GPipe"
    row pipeline "pipeline, 1F1B"
    row zero_bubble "pipeline, zero bubble"
}

round=0
while bench_round $round "$rounds"; do
    "$bench_bin/bench_cut_gpt" tensor 8 "$turns" 1 >>"$bench_work/one"
    for way in $ways; do
        "$bench_bin/trirun" --standalone --nproc-per-node 2 \
            "$bench_bin/bench_cut_gpt" "$way" 8 "$turns" 1 >>"$bench_work/$way"
    done
    round=$((round + 1))
    echo "round $round of $rounds" >&2
done

bench_table
cat "$table"
bench_end
