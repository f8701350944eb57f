#!/bin/sh
# launch.sh - from starting the launcher to the first finished all_reduce of two workers: the
# later of the two, median of many runs. Our workers link libtrireme and so load oneDNN.
# TRI_BENCH_RUNS: runs of trirun (default 41).
. "$(dirname "$0")/lib.sh"
bench_begin launch

# timed COMMAND: a shell line that prints when the later worker was done, in ms. bash tells the
# time without starting a process.
timed() {
    echo "LC_ALL=C bash -c 'TRI_BENCH_START=\$EPOCHREALTIME exec $*' | sort -g | tail -n 1"
}

runs=${TRI_BENCH_RUNS:-41}
ours=$(timed "$bench_bin/trirun --standalone --nproc-per-node 2 $bench_bin/bench_first_all_reduce")
alternate "$runs" "$ours" ""
all=$median_a
if with_peers; then
    need_pytorch
    alternate 5 "$ours" \
        "$(timed "$TRI_PEER_PYTHON -m torch.distributed.run --standalone --nproc-per-node 2 bench/peer_launch.py 2>/dev/null")"
    bench_case "first all_reduce" ms "$all" "$median_b" "torchrun, gloo"
    need_mpi launch
    alternate 11 "$ours" "$(timed "$mpirun -np 2 build/bench/peer_launch")"
    bench_case "first all_reduce, Open MPI" ms "$all" "$median_b" "mpirun"
else
    bench_case "first all_reduce" ms "$all"
fi
bench_end
