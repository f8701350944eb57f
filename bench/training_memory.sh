#!/bin/sh
# training_memory.sh - what each rank holds while a GPT of 28 million parameters is trained with Adam by
# tri_ddp and the stages of tri_zero on 1, 2, 4 and 8 ranks: the formula, tri_memory's count, and how
# the processes' memory grows; also as the table of docs/PARALLEL.md (build/bench/training_memory.md).
#
#     ./run bench training_memory
#
# MODEL (gpt:10,480,8,256,256), BATCH (1), RANKS (1 2 4 8), STRATEGIES (ddp zero1 zero2 zero3).
. "$(dirname "$0")/lib.sh"
bench_begin training_memory

table=build/bench/training_memory.md
{
    echo '| strategy | ranks | formula | parameters, gradients, states | messages | values of a step | grown by |'
    echo '| --- | --- | --- | --- | --- | --- | --- |'
} >"$table"
for strategy in ${STRATEGIES:-ddp zero1 zero2 zero3}; do
    for n in ${RANKS:-1 2 4 8}; do
        [ "$n" -gt 1 ] || [ "$strategy" = ddp ] || continue # one rank divides nothing
        TRI_NUM_THREADS=1 "$bench_bin/trirun" --standalone --nproc-per-node "$n" \
            "$bench_bin/bench_training_memory" "$strategy" "${MODEL:-gpt:10,480,8,256,256}" "${BATCH:-1}" \
            >"$bench_work/line"
        awk -v what="$strategy" -v n="$n" '{
            printf "| %s | %s | %.1f | %.1f | %.1f | %.1f | %.1f |\n", what, n, $1, $2, $3, $4, $5 }' \
            "$bench_work/line" >>"$table"
        bench_case "$strategy, $n ranks, kept" MiB "$(awk '{ print $2 }' "$bench_work/line")"
        bench_case "$strategy, $n ranks, grown by" MiB "$(awk '{ print $5 }' "$bench_work/line")"
    done
done
cat "$table"
bench_end
