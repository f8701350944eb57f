#!/bin/sh
# strategies.sh - a training step of ResNet-18 (batch 32, 3x224x224) by each strategy on two cores:
# milliseconds and memory, also as the table of docs/PARALLEL.md (build/bench/strategies.md). Then
# what strategies cost and bring: DataParallel against DDP, SyncBatchNorm against batch norm,
# ResNet-50 over two devices in pieces against one core, and, as root, a hook of half the bytes
# between two hosts with 1 Gbit/s: three products of 4096 x 4096, batches of 16 on each.
#
#     ./run bench strategies
#
# BENCH_CPU=1 counts processor time, of all cores and workers together, instead of time that passes:
# for busy machines. ROUNDS (3), MODEL (resnet18), BATCH (32), SIZE (224), STEPS (of which the shortest counts), LINK (1gbit).
. "$(dirname "$0")/lib.sh"
bench_begin strategies

rounds=${ROUNDS:-3}
model=${MODEL:-resnet18}
batch=${BATCH:-32}
size=${SIZE:-224}
steps=${STEPS:-3}
link=${LINK:-1gbit}
table=build/bench/strategies.md
program=$bench_bin/bench_strategies

# measure NAME THREADS STRATEGY [PIECES]: one line "ms MiB" more in the file NAME.
measure() {
    TRI_NUM_THREADS=$2 "$program" "$3" "$model" "$batch" "$size" "$steps" ${4:-} >>"$bench_work/$1"
}

# measure_workers NAME STRATEGY: two workers of one thread; MiB of both together.
measure_workers() {
    TRI_NUM_THREADS=1 "$bench_bin/trirun" --standalone --nproc-per-node 2 \
        "$program" "$2" "$model" "$batch" "$size" "$steps" |
        awk -v cpu="${BENCH_CPU:-}" '{ printf "%s %s\n", cpu != "" ? 2 * $1 : $1, 2 * $2 }' >>"$bench_work/$1"
}

# Of what was measured under NAME.
ms() { awk '{ print $1 }' "$bench_work/$1" | median; }
mib() { awk '{ print $2 }' "$bench_work/$1" | median; }

# row NAME STRATEGY PROCESSES THREADS: of the table.
row() {
    [ -s "$bench_work/$1" ] || return 0
    bench_case "$2" ms "$(ms "$1")"
    bench_case "$2, memory" MiB "$(mib "$1")"
    awk -v what="$2" -v processes="$3" -v threads="$4" -v ms="$(ms "$1")" -v mib="$(mib "$1")" \
        -v alone="$(ms alone)" 'BEGIN {
            printf "| %s | %s | %s | %.0f | %.2f | %.0f |\n", what, processes, threads, ms, ms / alone, mib }' >>"$table"
}

# ratio CASE UNIT A B: how many times as fast as A what B measures is, of the rounds the median.
ratio() {
    [ -s "$bench_work/$3" ] && [ -s "$bench_work/$4" ] || return 0
    bench_case "$1" "$2" "$(paste -d ' ' "$bench_work/$3" "$bench_work/$4" | awk 'NF == 4 { print $1 / $3 }' | median)"
}

bench_table() {
    {
        echo "| strategy | processes | threads of each | ${BENCH_CPU:+processor }ms a step | of one core's | MiB in all |"
        echo '| --- | --- | --- | --- | --- | --- |'
    } >"$table"
    row alone "one core" 1 1
    row threads "one device of two cores" 1 2
    row recompute "the same, residual blocks recomputed" 1 2
    row accumulate "the same, 4 batches of a quarter, one update" 1 2
    row data_parallel "DataParallel, two devices" 1 2
    row ddp "DDP, two workers" 2 1
    row zero1 "ZeRO 1, two workers" 2 1
    row zero2 "ZeRO 2, two workers" 2 1
    row zero3 "ZeRO 3, two workers" 2 1
    row sync "DDP, two workers, SyncBatchNorm" 2 1
    row cut "model parallel, two devices" 1 2
    row pipelined "the same, pipelined in 4 pieces" 1 2
    ratio "DataParallel, 2 devices" "of DDP" ddp data_parallel
    bench_case "SyncBatchNorm" "of DDP" "$(awk '{ print $1 }' "$bench_work/sync_share" | median)"
    ratio "bf16 hook" times hook_none hook_bf16
    [ ! -s "$bench_work/resnet50" ] || {
        bench_case "pipelined ResNet-50, 2 devices" times \
            "$(awk '/^split_[0-9]+ / && $4 + 0 > most { most = $4 + 0 } END { print most }' "$bench_work/resnet50")"
        bench_case "the same, of what its halves allow" % \
            "$(awk '/of what that allows/ { print $1 }' "$bench_work/resnet50")"
    }
}

bench_part 6 10
round=0
while bench_round "$round" "$rounds"; do
    measure_workers ddp ddp
    measure_workers zero1 zero1
    measure_workers zero2 zero2
    measure_workers zero3 zero3
    measure data_parallel 2 data_parallel
    measure_workers sync ddp_sync
    measure alone 1 one
    measure threads 2 one
    measure recompute 2 recompute
    measure accumulate 2 accumulate 4
    measure cut 2 cut
    measure pipelined 2 pipelined 4
    round=$((round + 1))
    echo "round $round of $rounds" >&2
done

# In turn within the same two workers: how fast a core is changes between processes by more than
# the 5 % that are looked for.
TRI_NUM_THREADS=1 "$bench_bin/trirun" --standalone --nproc-per-node 2 \
    "$bench_bin/bench_ddp_step" sync_batch_norm resnet18 "$((batch / 2))" "$(full_or 9 3)" 2 \
    >"$bench_work/sync_share"

TRI_NUM_THREADS=2 "$bench_bin/model_parallel" --output "$bench_work/seconds.jsonl" \
    --repeats "$(full_or 10 2)" --split-size "$(full_or 0 8)" >"$bench_work/resnet50"

if [ "$(id -u)" -eq 0 ]; then
    hosts_begin 2 "$link"
    for hook in none bf16 none bf16; do
        TRI_NUM_THREADS=1 hosts_run 1 "$program" "$([ $hook = none ] && echo ddp || echo ddp_bf16)" \
            mlp:4096,4096,4096,4096 32 4096 3 >>"$bench_work/hook_$hook"
    done
    hosts_end
else
    echo "bench: strategies: the hook needs network namespaces: run it as root" >&2
fi

bench_table
cat "$table"
bench_end
