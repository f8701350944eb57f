#!/bin/sh
# overlap.sh - how much of an asynchronous all_reduce of 25 MiB a computation of the same duration
# hides: 2 ranks on 2 hosts (network namespaces) with a link of 1 Gbit/s, then 2 ranks on one host.
#
#     ./run bench overlap              as root, with iproute2
#
# all_reduce alone a, computation alone b, both at once c: hidden is (a + b - c) / min(a, b), 1 = all
# of it. ROUNDS (3), LINK (1gbit), BYTES (25 MiB).
. "$(dirname "$0")/lib.sh"
bench_begin overlap

rounds=${ROUNDS:-3}
bytes=${BYTES:-26214400}
link=${LINK:-1gbit}
cores=$(nproc)
export cores
bind='[ "$cores" -lt 2 ] || exec taskset -c "$((RANK % cores))" "$0" "$@"; exec "$0" "$@"'

bench_table() {
    for where in "$link" "one host"; do
        i=1
        for what in all_reduce computation both after; do
            awk -v i=$i '{ print $i }' "$bench_work/$where" | median >"$bench_work/$what"
            i=$((i + 1))
        done
        bench_case "$where $((bytes >> 20)) MiB all_reduce" us "$(cat "$bench_work/all_reduce")"
        bench_case "$where $((bytes >> 20)) MiB computation" us "$(cat "$bench_work/computation")"
        bench_case "$where $((bytes >> 20)) MiB both" us "$(cat "$bench_work/both")" \
            "$(cat "$bench_work/after")" "one after the other"
        bench_case "$where $((bytes >> 20)) MiB hidden" share \
            "$(awk '{ m = $1 < $2 ? $1 : $2; print ($1 + $2 - $3) / m }' "$bench_work/$where" | median)"
    done
}

hosts_begin 2 "$link"
round=0
while bench_round "$round" "$rounds"; do
    hosts_run 1 sh -c "$bind" "$bench_bin/bench_overlap" overlap "$bytes" 9 >>"$bench_work/$link"
    "$bench_bin/trirun" --standalone --nproc-per-node 2 sh -c "$bind" \
        "$bench_bin/bench_overlap" overlap "$bytes" 31 >>"$bench_work/one host"
    round=$((round + 1))
    echo "round $round of $rounds" >&2
done
hosts_end

bench_table
bench_end
