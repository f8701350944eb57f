#!/bin/sh
# agent.sh - what trirun itself costs: memory and wake-ups while nothing happens, the start of many
# workers that exit at once, and its own share of a script's start-up (the script under the launcher
# less the script alone). The peer is torchrun.
# TRI_BENCH_SECONDS: how long wake-ups are counted (default 5). TRI_BENCH_RUNS: of each time (default 15).
. "$(dirname "$0")/lib.sh"
bench_begin agent

seconds=${TRI_BENCH_SECONDS:-5}
runs=${TRI_BENCH_RUNS:-15}
torchrun=
if with_peers; then
    need_pytorch
    torchrun="$TRI_PEER_PYTHON -m torch.distributed.run"
fi
mkfifo "$bench_work/ready"
exec 3<>"$bench_work/ready" # open for good, so that no word is lost

# idle COMMAND...: starts a launcher with two workers that sleep; sets pid, then kib (memory that is
# its own, PSS, with its helper processes but not its workers) and wakes (wake-ups a second).
idle() {
    "$@" --nproc-per-node 2 --no-python sh -c "echo >$bench_work/ready; exec sleep 1000" \
        >/dev/null 2>&1 &
    pid=$!
    for _ in 1 2; do read -r _ <&3; done
    sleep 1 # whatever belongs to the start
    kib=0
    for one in $pid $(pgrep -P "$pid"); do
        grep -q '^sleep' "/proc/$one/comm" ||
            kib=$((kib + $(awk '/^Pss:/ { print $2 }' "/proc/$one/smaps_rollup")))
    done
    resident=$(awk '/^VmRSS:/ { print $2 }' "/proc/$pid/status")
    before=$(switches "$pid")
    sleep "$seconds"
    wakes=$(($(switches "$pid") - before))
    wakes=$(awk -v n="$wakes" -v s="$seconds" 'BEGIN { printf "%.2f", n / s }')
    kill "$pid"
    wait "$pid" || true
}

# switches PID: how often its threads have gone to sleep.
switches() {
    cat "/proc/$1"/task/*/status | awk '/^voluntary_ctxt_switches/ { n += $2 } END { print n }'
}

# timed COMMAND: a shell line that prints how long the command takes, in ms.
timed() {
    echo "LC_ALL=C bash -c 's=\$EPOCHREALTIME; $* >/dev/null 2>&1; e=\$EPOCHREALTIME; echo \"\$s \$e\"' | awk '{ print (\$2 - \$1) * 1000 }'"
}

# less A B: A - B.
less() {
    awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", a - b }'
}

idle "$bench_bin/trirun"
ours_kib=$kib ours_resident=$resident ours_wakes=$wakes
their_kib= their_resident= their_wakes=
if [ -n "$torchrun" ]; then
    # shellcheck disable=SC2086 # two words
    idle $torchrun
    their_kib=$kib their_resident=$resident their_wakes=$wakes
fi
name=${torchrun:+torchrun}
bench_case "memory, its own (PSS)" KiB "$ours_kib" "$their_kib" "$name"
bench_case "memory, resident" KiB "$ours_resident" "$their_resident" "$name"
bench_case "wake-ups when idle" 1/s "$ours_wakes" "$their_wakes" "$name"

many="--nproc-per-node 64 --no-python true"
alternate "$runs" "$(timed "$bench_bin/trirun $many")" ""
ours_many=$median_a their_many=
if [ -n "$torchrun" ]; then
    alternate 3 "$(timed "$torchrun $many")" ""
    their_many=$median_a
fi
bench_case "64 workers that exit at once" ms "$ours_many" "$their_many" "$name"

python=${TRI_PEER_PYTHON:-python3}
echo pass >"$bench_work/empty.py"
alternate "$runs" "$(timed "PYTHON_EXEC=$python $bench_bin/trirun $bench_work/empty.py")" \
    "$(timed "$python -u $bench_work/empty.py")"
ours_share=$(less "$median_a" "$median_b") their_share=
if [ -n "$torchrun" ]; then
    alternate 3 "$(timed "$torchrun $bench_work/empty.py")" "$(timed "$python -u $bench_work/empty.py")"
    their_share=$(less "$median_a" "$median_b")
fi
bench_case "share of a script's start-up" ms "$ours_share" "$their_share" "$name"
bench_end
