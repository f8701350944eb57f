#!/bin/sh
# tcp.sh - the collectives over TCP at sizes from 4 B to 64 MiB: 2 ranks over loopback, and network
# namespaces as hosts, 2 and 4 of them with 2 ranks each; with --peers beside PyTorch's Gloo, in
# turns. Then all_reduce of 2 ranks over a link of 1 Gbit/s beside one plain TCP connection that
# carries as much in each direction at once.
#
#     ./run bench tcp [--peers] [--full]        as root, with iproute2
#
# ROUNDS (3), MAX_BYTES (1 MiB; 64 MiB with --full), OPS (all), HOSTS ("1 2", with --full "1 2 4": 1
# is loopback), LINK (1gbit) limit it.
# ENGINES ("tcp"; "auto" joins the ranks of a host by shm) are measured one after the other.
. "$(dirname "$0")/lib.sh"
bench_begin tcp

rounds=${ROUNDS:-3}
max_bytes=${MAX_BYTES:-$(full_or 67108864 1048576)}
ops=${OPS-all_reduce all_gather reduce_scatter broadcast all_to_all send_recv}
hosts=${HOSTS-$(full_or "1 2 4" "1 2")}
engines=${ENGINES:-tcp}
link=${LINK:-1gbit}
! with_peers || need_pytorch
# Ours are bound to cores; Gloo, which has more threads than ranks, is not: that is its best.
cores=$(nproc)
export cores
bind='[ "$cores" -lt 2 ] || exec taskset -c "$((LOCAL_RANK % cores))" "$0" "$@"; exec "$0" "$@"'
touch "$bench_work/ours" "$bench_work/gloo" "$bench_work/link"

ours() { # ours HOSTS ENGINE OP
    export TRI_ENGINE=$2
    [ "$2" != auto ] || unset TRI_ENGINE
    if [ "$1" -eq 1 ]; then
        "$bench_bin/trirun" --standalone --nproc-per-node 2 sh -c "$bind" "$bench_bin/bench_collectives" \
            heap "$max_bytes" "$3"
    else
        hosts_run 2 sh -c "$bind" "$bench_bin/bench_collectives" heap "$max_bytes" "$3"
    fi
    unset TRI_ENGINE
}

gloo() { # gloo HOSTS OP
    if [ "$1" -eq 1 ]; then
        "$TRI_PEER_PYTHON" bench/peer_gloo_collectives.py 2 "$max_bytes" "$2" 2>/dev/null
    else
        hosts_run 2 "$TRI_PEER_PYTHON" bench/peer_gloo_collectives.py 0 "$max_bytes" "$2"
    fi
}

parts=1 part=0 # the link of limited speed is one of them
for n in $hosts; do parts=$((parts + 1)); done

# time_of FILE CASE: the median over the rounds.
time_of() {
    awk -F '\t' -v name="$2" '$1 == name { print $2 }' "$bench_work/$1" | median || true
}

bench_table() {
    awk -F '\t' '!seen[$1]++ { print $1 }' "$bench_work/ours" >"$bench_work/cases"
    while IFS= read -r name; do
        theirs=$(time_of gloo "$(echo "$name" | sed -E 's/^(loopback|[0-9]+ hosts) [a-z]+ /\1 /')")
        bench_case "$(echo "$name" | sed 's/ heap / /')" us "$(time_of ours "$name")" "$theirs" "${theirs:+Gloo}"
    done <"$bench_work/cases"
    for bytes in 26214400 67108864; do
        for who in ours stream; do
            awk -F '\t' -v name="$who $bytes" '$1 == name { print '$bytes' / $2 }' "$bench_work/link" |
                median >"$bench_work/$who"
        done
        bench_case "$link all_reduce 2 ranks $((bytes >> 20)) MiB" MB/s "$(cat "$bench_work/ours")" \
            "$(cat "$bench_work/stream")" "plain stream" higher
    done
}

for n in $hosts; do
    part=$((part + 1))
    bench_part $part $parts
    layout="loopback"
    [ "$n" -eq 1 ] || {
        layout="$n hosts"
        hosts_begin "$n"
    }
    round=0
    while bench_round "$round" "$rounds"; do
        for op in $ops; do
            for engine in $engines; do
                ours "$n" "$engine" "$op" >"$bench_work/lines"
                sed "s/^/$layout $engine /" "$bench_work/lines" >>"$bench_work/ours"
            done
            with_peers || continue
            gloo "$n" "$op" >"$bench_work/lines"
            sed "s/^/$layout /" "$bench_work/lines" >>"$bench_work/gloo"
        done
        round=$((round + 1))
        echo "$layout: round $round of $rounds" >&2
    done
    hosts_end
done

# One connection's bytes a microsecond in each direction, which is MB/s.
cc -O2 -D_GNU_SOURCE -o build/bench/peer_tcp_stream bench/peer_tcp_stream.c
hosts_begin 2 "$link"
bench_part 1 1
: >"$bench_work/link"
round=0
while bench_round "$round" "$rounds"; do
    TRI_ENGINE=tcp hosts_run 1 "$bench_bin/bench_overlap" link 26214400 67108864 |
        sed 's/^/ours /' >>"$bench_work/link"
    hosts_run 1 build/bench/peer_tcp_stream 26214400 67108864 | sed 's/^/stream /' >>"$bench_work/link"
    round=$((round + 1))
    echo "$link: round $round of $rounds" >&2
done
hosts_end
bench_table
bench_end
