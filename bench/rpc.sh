#!/bin/sh
# rpc.sh - calls between two workers of one host: round trips and calls a second, inline and on an
# executor thread, asleep, on one core, over tcp beside plain sockets, large arguments beside memcpy,
# what a worker costs, and when a death is known; with --peers beside torch.distributed.rpc.
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

torch() {
    port=$((20000 + $$ % 20000))
    "$TRI_PEER_PYTHON" bench/peer_rpc.py "$port" 1 "$max_bytes" >/dev/null 2>&1 &
    server=$!
    "$TRI_PEER_PYTHON" bench/peer_rpc.py "$port" 0 "$max_bytes" 2>/dev/null >>"$bench_work/torch"
    wait "$server"
}

# of FILE CASE [COLUMN]: the median over the rounds.
of() {
    awk -F '\t' -v name="$2" -v column="${3:-2}" '$1 == name { print $column }' "$bench_work/$1" | median || true
}

bench_table() {
    awk -F '\t' '!seen[$1]++ { print $1 }' "$bench_work/lines" >"$bench_work/cases"
    while IFS= read -r name; do
        ours=$(of lines "$name")
        theirs=$(of torch "$(echo "$name" | sed 's/^inline/executor/')")
        case $name in
        heap*)
            bench_case "$name" GB/s "$ours" "$(of lines "$name" 3)" memcpy higher
            [ -z "$theirs" ] || bench_case "$name, torch" GB/s "$ours" "$theirs" torch higher
            ;;
        *"at once") bench_case "$name" calls/s "$ours" "$theirs" "${theirs:+torch}" higher ;;
        threads) bench_case "$name" threads "$ours" ;;
        PSS) bench_case "$name" KB "$ours" ;;
        death*) bench_case "$name" ms "$ours" ;;
        "tcp inline, round trip") bench_case "$name" us "$ours" "$(of lines "plain tcp")" "plain tcp" ;;
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
    ! with_peers || torch
    round=$((round + 1))
    echo "round $round of $rounds" >&2
done

bench_table
bench_end
