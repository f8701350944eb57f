#!/bin/sh
# rpc.sh - calls between two workers of one host: round trips and calls a second, inline and on an
# executor thread, asleep, on one core, over tcp beside plain sockets, large arguments beside memcpy,
# what a worker costs, when a death is known, and a parameter server with four trainers (100,000
# floats, and the 23.6 million of ResNet-50); with --peers beside torch.distributed.rpc.
#
#     ./run bench rpc [--peers] [--full]
#
# ROUNDS (3), MAX_BYTES (64 MiB; 1 GiB with --full) limit it.
. "$(dirname "$0")/lib.sh"
bench_begin rpc

rounds=${ROUNDS:-3}
max_bytes=${MAX_BYTES:-$(full_or 1073741824 67108864)}
! with_peers || need_pytorch
mkdir -p build/bench
cc -O2 -D_GNU_SOURCE -o build/bench/peer_tcp_ping_pong bench/peer_tcp_ping_pong.c
cores=$(nproc)
trainers=4
small_floats=100000
large_floats=23569502 # of ResNet-50 with 30 classes
export max_bytes
touch "$bench_work/lines" "$bench_work/torch"

# on CORE COMMAND...: bound to it, where there is more than one
on() {
    core=$1
    shift
    if [ "$cores" -gt 1 ]; then taskset -c "$core" "$@"; else "$@"; fi
}

# measure CASE TRANSPORT CORE PREFIX: the server on CORE
measure() {
    store=$bench_work/store-$1-$2
    rm -f "$store"
    on "$3" "$bench_bin/bench_rpc" serve "$store" "$2" &
    server=$!
    on 0 "$bench_bin/bench_rpc" "$1" "$store" "$2" "$max_bytes" | sed "s/^/$4/" >>"$bench_work/lines"
    wait "$server" || [ "$1" = death ]
}

# batch FLOATS UPDATES: a parameter server and its trainers, on all cores
batch() {
    store=$bench_work/store-batch
    rm -f "$store"
    "$bench_bin/bench_rpc_updates" serve "$store" $trainers "$1" "$2" |
        sed "s/^/batch of $trainers, $1 floats\t/" >>"$bench_work/lines" &
    processes=$!
    for index in $(seq $trainers); do
        "$bench_bin/bench_rpc_updates" train "$store" "$index" "$1" "$2" &
        processes="$processes $!"
    done
    for process in $processes; do
        wait "$process"
    done
}

torch() {
    port=$((20000 + $$ % 20000 + 10 * round))
    on 1 "$TRI_PEER_PYTHON" bench/peer_rpc.py "$port" 1 "$max_bytes" >/dev/null 2>&1 &
    server=$!
    on 0 "$TRI_PEER_PYTHON" bench/peer_rpc.py "$port" 0 "$max_bytes" 2>/dev/null >>"$bench_work/torch"
    wait "$server" || true # it was killed
}

torch_batch() {
    port=$((port + 2))
    processes=
    for rank in $(seq $trainers); do
        "$TRI_PEER_PYTHON" bench/peer_rpc_updates.py $port "$rank" $trainers >/dev/null 2>&1 &
        processes="$processes $!"
    done
    "$TRI_PEER_PYTHON" bench/peer_rpc_updates.py $port 0 $trainers $small_floats:30 $large_floats:3 2>/dev/null |
        sed "s/^\([0-9]*\)/batch of $trainers, \1 floats/" >>"$bench_work/torch"
    for process in $processes; do
        wait "$process"
    done
}

# of FILE CASE [COLUMN]: the median over the rounds.
of() {
    awk -F '\t' -v name="$2" -v column="${3:-2}" '$1 == name { print $column }' "$bench_work/$1" | median || true
}

bench_table() {
    awk -F '\t' '!seen[$1]++ { print $1 }' "$bench_work/lines" >"$bench_work/cases"
    while IFS= read -r name; do
        ours=$(of lines "$name")
        theirs=$(of torch "$(echo "$name" | sed 's/inline/executor/')")
        case $name in
        heap*)
            bench_case "$name" GB/s "$ours" "$(of lines "$name" 3)" memcpy higher
            [ -z "$theirs" ] || bench_case "$name, torch" GB/s "$ours" "$theirs" torch higher
            ;;
        batch*) bench_case "$name" updates/s "$ours" "$theirs" "${theirs:+torch}" higher ;;
        *"at once") bench_case "$name" calls/s "$ours" "$theirs" "${theirs:+torch}" higher ;;
        threads) bench_case "$name" threads "$ours" "$theirs" "${theirs:+torch}" ;;
        PSS) bench_case "$name" KB "$ours" "$theirs" "${theirs:+torch}" ;;
        death*) bench_case "$name" ms "$ours" "$theirs" "${theirs:+torch}" ;;
        "tcp inline, round trip")
            bench_case "$name" us "$ours" "$(of lines "plain tcp")" "plain tcp"
            [ -z "$theirs" ] || bench_case "$name, torch" us "$ours" "$theirs" torch
            ;;
        "plain tcp") ;;
        *) bench_case "$name" us "$ours" "$theirs" "${theirs:+torch}" ;;
        esac
    done <"$bench_work/cases"
}

round=0
while bench_round "$round" "$rounds"; do
    measure calls shm 1 ""
    measure asleep shm 1 ""
    measure one_core shm 0 ""
    measure calls tcp 1 "tcp "
    build/bench/peer_tcp_ping_pong | sed 's/^/plain tcp\t/' >>"$bench_work/lines"
    measure parts shm 1 ""
    measure growth shm 1 ""
    measure death shm 1 ""
    batch $small_floats 1000
    batch $large_floats 6
    if with_peers; then
        torch
        torch_batch
    fi
    round=$((round + 1))
    echo "round $round of $rounds" >&2
done

bench_table
bench_end
