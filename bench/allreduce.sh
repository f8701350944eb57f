#!/bin/sh
# allreduce.sh - all_reduce of 2 ranks on one host: ours beside the bare exchange of one cache
# line and the bare sum of two vectors by two cores, and with --peers beside Open MPI (blocking MPI_Allreduce, bound to cores, CMA on), in
# turns. ROUNDS (3) and MAX_BYTES limit it.
. "$(dirname "$0")/lib.sh"
bench_begin allreduce

rounds=${ROUNDS:-3}
max_bytes=${MAX_BYTES:-1073741824}
cc -O2 -o build/bench/peer_line_exchange bench/peer_line_exchange.c
cc -O3 -march=native -o build/bench/peer_input_sum bench/peer_input_sum.c
if with_peers; then
    need_mpi openmpi_allreduce
fi
# One core each, as mpirun binds its ranks.
bind='exec "$0" "$@"'
if command -v taskset >/dev/null 2>&1; then
    bind='exec taskset -c "$LOCAL_RANK" "$0" "$@"'
fi
touch "$bench_work/peer"

# time_of FILE CASE: the median over the rounds.
time_of() {
    awk -F '\t' -v name="$2" '$1 == name { print $2 }' "$bench_work/$1" | median || true
}

bench_table() {
    for size in '4 B' '1 KiB' '16 KiB' '64 KiB' '256 KiB' '1 MiB' '4 MiB' '16 MiB' '64 MiB' '256 MiB'; do
        name="shm 2 ranks arena $size"
        ours=$(time_of ours "$name")
        [ -n "$ours" ] || continue
        if [ "$size" = '4 B' ]; then
            bench_case "$name" us "$ours" "$(time_of ours 'bare line exchange')" 'bare line exchange'
        fi
        floor=$(time_of ours "bare sum $size")
        [ -z "$floor" ] || bench_case "$name" us "$ours" "$floor" 'bare sum'
        peer=$(time_of peer "$name")
        if [ -n "$peer" ]; then
            bench_case "$name" us "$ours" "$peer" 'Open MPI'
        elif [ "$size" != '4 B' ] && [ -z "$floor" ]; then
            bench_case "$name" us "$ours"
        fi
    done
}

round=0
while bench_round "$round" "$rounds"; do
    build/bench/peer_line_exchange >>"$bench_work/ours"
    build/bench/peer_input_sum >>"$bench_work/ours"
    "$bench_bin/trirun" --standalone --nproc-per-node 2 sh -c "$bind" \
        "$bench_bin/bench_allreduce" "$max_bytes" >>"$bench_work/ours"
    if with_peers; then
        $mpirun -np 2 --bind-to core --mca btl self,vader \
            --mca btl_vader_single_copy_mechanism cma build/bench/peer_openmpi_allreduce \
            "$max_bytes" >>"$bench_work/peer"
    fi
    round=$((round + 1))
done
bench_table
bench_end
