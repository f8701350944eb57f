#!/bin/sh
# collectives.sh - every collective on one host at sizes from 4 B to 64 MiB: ours from the heap and
# from arenas, with --peers beside Open MPI, MPICH and PyTorch's Gloo, in turns.
#
#     ./run bench collectives [--peers] [--full]
#
# ROUNDS (5), MAX_BYTES (1 MiB; 64 MiB with --full), OPS (all), RANKS ("2", with --full "2 4 8": all
# operations for 2, all_reduce for more) limit it. A case has a line for each peer.
. "$(dirname "$0")/lib.sh"
bench_begin collectives

rounds=${ROUNDS:-5}
max_bytes=${MAX_BYTES:-$(full_or 67108864 1048576)}
ops=${OPS:-all_reduce all_gather reduce_scatter broadcast all_to_all send_recv}
ranks=${RANKS:-$(full_or "2 4 8" 2)}
bind='exec "$0" "$@"'
if command -v taskset >/dev/null 2>&1 && [ "$(nproc)" -ge 2 ]; then
    bind='exec taskset -c "$((LOCAL_RANK % '"$(nproc)"'))" "$0" "$@"'
fi

mpich=
if with_peers; then
    need_pytorch
    need_mpi mpi_collectives
    if command -v mpicc.mpich >/dev/null 2>&1 && command -v mpirun.mpich >/dev/null 2>&1; then
        mpicc.mpich -O3 -o build/bench/peer_mpich_collectives bench/peer_mpi_collectives.c -lm
        mpich=yes
    else
        echo "bench: MPICH is missing (package mpich): measuring without it" >&2
    fi
fi

ours() { # ours RANKS ARGS...
    n=$1
    shift
    "$bench_bin/trirun" --standalone --nproc-per-node "$n" sh -c "$bind" \
        "$bench_bin/bench_collectives" "$@"
}

touch "$bench_work/Open MPI" "$bench_work/MPICH" "$bench_work/Gloo"

# time_of FILE CASE: the median over the rounds.
time_of() {
    awk -F '\t' -v name="$2" '$1 == name { print $2 }' "$bench_work/$1" | median || true
}

bench_table() {
    awk -F '\t' '!seen[$1]++ { print $1 }' "$bench_work/ours" >"$bench_work/cases"
    while IFS= read -r name; do
        title=$(echo "$name" | sed 's/^all_reduce /shm /')
        mine=$(time_of ours "$name")
        heap=$(echo "$name" | sed 's/ arena / heap /')
        shown=
        for peer in 'Open MPI' MPICH Gloo; do
            theirs=$(time_of "$peer" "$heap")
            [ -n "$theirs" ] || continue
            bench_case "$title" us "$mine" "$theirs" "$peer"
            shown=yes
        done
        [ -n "$shown" ] || bench_case "$title" us "$mine"
    done <"$bench_work/cases"
    for dtype in bf16 f16; do
        bench_case "shm 2 ranks arena 64 MiB $dtype" elements/us "$(time_of dtypes $dtype)" \
            "$(time_of dtypes f32)" f32 higher
    done
}

round=0
while bench_round "$round" "$rounds"; do
    for n in $ranks; do
        for op in $ops; do
            [ "$n" -eq 2 ] || [ "$op" = all_reduce ] || continue
            ours "$n" heap "$max_bytes" "$op" >>"$bench_work/ours"
            ours "$n" arena "$max_bytes" "$op" >>"$bench_work/ours"
            with_peers || continue
            binding='--bind-to core'
            [ "$n" -le "$(nproc)" ] || binding='--bind-to none --mca mpi_yield_when_idle 1'
            $mpirun -np "$n" $binding --mca btl self,vader \
                --mca btl_vader_single_copy_mechanism cma build/bench/peer_mpi_collectives \
                "$max_bytes" "$op" >>"$bench_work/Open MPI"
            [ -z "$mpich" ] || mpirun.mpich -np "$n" build/bench/peer_mpich_collectives \
                "$max_bytes" "$op" >>"$bench_work/MPICH"
            "$TRI_PEER_PYTHON" bench/peer_gloo_collectives.py "$n" "$max_bytes" "$op" \
                >>"$bench_work/Gloo" 2>"$bench_work/gloo-log" ||
                echo "bench: Gloo, $op, $n ranks: $(tail -n 1 "$bench_work/gloo-log")" >&2
        done
    done
    ours 2 dtypes >>"$bench_work/dtypes"
    round=$((round + 1))
    echo "round $round of $rounds" >&2
done
bench_table
bench_end
