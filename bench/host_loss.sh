#!/bin/sh
# host_loss.sh - two agents on hosts of their own (network namespaces), workers on both; one host is
# gone, and the other one goes on alone: when its agent noticed, and when its worker had started
# again and finished an all_reduce. "power": the wire is cut and all processes of the host are killed,
# so that nothing is heard of it any more, which is noticed after --host-timeout (5 s); "killed": the
# processes only, whose connections break.
# Needs root. TRI_BENCH_RUNS: losses of each kind (default 21).
. "$(dirname "$0")/lib.sh"
bench_begin host_loss
hosts_begin 2

# The worker of the two-host world waits; the next one, alone, says when it had its sum.
cat >"$bench_work/worker" <<'END'
#!/bin/bash
export LC_ALL=C
if [ "$WORLD_SIZE" = 2 ]; then
    : >"$BENCH_STAMP.up$RANK"
    if [ -n "$BENCH_FAILS" ]; then # as a worker whose collective breaks
        until [ -s "$BENCH_STAMP" ]; do sleep 0.01; done
        exit 1
    fi
    exec sleep 1000
fi
read -r TRI_BENCH_START <"$BENCH_STAMP"
export TRI_BENCH_START
exec "$BENCH_WORKER"
END
# Puts the time in front of each line.
cat >"$bench_work/stamped" <<'END'
#!/bin/bash
export LC_ALL=C
while read -r line; do echo "$EPOCHREALTIME $line"; done
END
chmod +x "$bench_work/worker" "$bench_work/stamped"

# lose HOW LAUNCHER...: one loss of host 2; sets noticed and again, in ms.
lose() {
    how=$1
    shift
    stamp=$bench_work/stamp
    rm -f "$stamp" "$stamp".*
    hosts_port=$((hosts_port + 1))
    for host in 1 2; do
        # is_host: torchrun does not know the addresses of a network namespace as its own
        BENCH_STAMP=$stamp ip netns exec "$hosts_name-$host" "$@" --nnodes 1:2 --rdzv-backend c10d \
            --rdzv-endpoint "10.77.0.1:$hosts_port" --rdzv-conf "${conf}is_host=$((2 - host))" \
            --rdzv-id "$hosts_port" --max-restarts 3 \
            --nproc-per-node 1 --local-addr "10.77.0.$host" --no-python "$bench_work/worker" \
            >"$stamp.out$host" 2>"$stamp.err$host" &
        eval "agent$host=\$!"
        # the store's host comes first
        [ $host = 2 ] || until ip netns exec "$hosts_name-1" ss -ltn | grep -q ":$hosts_port"; do
            kill -0 "$agent1"
        done
    done
    until [ -e "$stamp.up0" ] && [ -e "$stamp.up1" ]; do kill -0 "$agent1"; done
    tail -n +1 -f "$stamp.err1" --pid="$agent1" | "$bench_work/stamped" >"$stamp.told" &
    sleep 0.3 # they are at rest
    [ "$how" = killed ] || ip -n "$hosts_name-0" link set port2 nomaster
    bash -c 'LC_ALL=C; echo $EPOCHREALTIME' >"$stamp.new"
    mv "$stamp.new" "$stamp"
    for pid in $(ip netns pids "$hosts_name-2"); do kill -9 "$pid" 2>/dev/null || true; done
    wait "$agent1" || {
        cat "$stamp.err1" >&2
        return 1
    }
    wait
    [ "$how" = killed ] || ip -n "$hosts_name-0" link set port2 master switch
    again=$(tail -n 1 "$stamp.out1")
    read -r start <"$stamp"
    noticed=$(awk -v start="$start" '/10.77.0.2|was silent|is gone/ { printf "%.3f\n", ($1 - start) * 1000; exit }' "$stamp.told")
}

# lose_many RUNS HOW LAUNCHER...: medians and the worst in median_noticed, worst_noticed, ..._again.
lose_many() {
    runs=$1
    shift
    : >"$bench_work/noticed"
    : >"$bench_work/again"
    run=0
    while bench_round $run "$runs"; do
        lose "$@"
        echo "$noticed" >>"$bench_work/noticed" # nothing from torchrun
        echo "$again" >>"$bench_work/again"
        run=$((run + 1))
    done
    median_noticed=$(median <"$bench_work/noticed") || :
    worst_noticed=$(sort -g "$bench_work/noticed" | tail -n 1)
    median_again=$(median <"$bench_work/again")
    worst_again=$(sort -g "$bench_work/again" | tail -n 1)
}

export BENCH_FAILS= BENCH_WORKER="$bench_bin/bench_first_all_reduce"
peer_power=
peer_killed=
conf=
if with_peers; then
    # torchrun notices no host that dies, so its worker fails at once; it then waits for keep-alives.
    # The worker is the same, and ends after its sum.
    need_pytorch
    BENCH_FAILS=1
    conf=last_call_timeout=5, # by default 30 s; with less the first host goes on before the second has Python
    bench_part 1 4
    lose_many 2 power "$TRI_PEER_PYTHON" -m torch.distributed.run
    peer_power=$median_again
    bench_part 2 4
    lose_many 2 killed "$TRI_PEER_PYTHON" -m torch.distributed.run
    peer_killed=$median_again
    BENCH_FAILS=
    conf=
fi
bench_part 3 4
lose_many "${TRI_BENCH_RUNS:-21}" power "$bench_bin/trirun"
bench_case "power lost: noticed" ms "$median_noticed"
bench_case "power lost: noticed, worst" ms "$worst_noticed"
bench_case "power lost: running again" ms "$median_again" "$peer_power" "${peer_power:+torchrun, worker failed}"
bench_case "power lost: running again, worst" ms "$worst_again"
bench_part 1 1
lose_many "${TRI_BENCH_RUNS:-21}" killed "$bench_bin/trirun"
bench_case "killed: noticed" ms "$median_noticed"
bench_case "killed: noticed, worst" ms "$worst_noticed"
bench_case "killed: running again" ms "$median_again" "$peer_killed" "${peer_killed:+torchrun, worker failed}"
bench_case "killed: running again, worst" ms "$worst_again"
bench_end
