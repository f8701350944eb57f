#!/bin/sh
# restart.sh - from the end of a worker that is killed to the first all_reduce of the workers that
# were started again, the later of two: detection, the stop of the other worker, the meeting, the
# start. Our workers link libtrireme and so load oneDNN. TRI_BENCH_RUNS: runs of trirun (default 41).
. "$(dirname "$0")/lib.sh"
bench_begin restart

# restarted LAUNCHER WORKER: a shell line that prints the time in ms. The worker of rank 1 writes
# down when it kills itself, and the next one reads that: bash tells the time without a process.
cat >"$bench_work/worker" <<'END'
#!/bin/bash
export LC_ALL=C
if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then
    [ "$RANK" = 1 ] || { : >"$BENCH_STAMP.up"; exec sleep 1000; }
    until [ -e "$BENCH_STAMP.up" ]; do :; done
    echo "$EPOCHREALTIME" >"$BENCH_STAMP"
    kill -KILL $$
fi
read -r TRI_BENCH_START <"$BENCH_STAMP"
export TRI_BENCH_START
exec "$@"
END
chmod +x "$bench_work/worker"
restarted() {
    echo "BENCH_STAMP=$bench_work/stamp.\$\$; export BENCH_STAMP; $1 --max-restarts 1 --nproc-per-node 2 --no-python $bench_work/worker $2 2>/dev/null | sort -g | tail -n 1"
}

runs=${TRI_BENCH_RUNS:-41}
ours=$(restarted "$bench_bin/trirun --standalone" "$bench_bin/bench_first_all_reduce")
alternate "$runs" "$ours" ""
all=$median_a
if with_peers; then
    need_pytorch
    alternate 5 "$ours" \
        "$(restarted "$TRI_PEER_PYTHON -m torch.distributed.run --standalone" "$bench_bin/bench_first_all_reduce")"
    bench_case "killed to all_reduce again" ms "$all" "$median_b" "torchrun, C program"
    alternate 3 "$ours" \
        "$(restarted "$TRI_PEER_PYTHON -m torch.distributed.run --standalone" "$TRI_PEER_PYTHON bench/peer_launch.py")"
    bench_case "killed to all_reduce again, gloo" ms "$all" "$median_b" "torchrun, gloo"
else
    bench_case "killed to all_reduce again" ms "$all"
fi
bench_end
