#!/bin/sh
# overlap.sh - how much of its communication a computation hides. A training step of ResNet-18 (f32,
# batch 16 of 3x224x224 on each of 2 hosts, which are network namespaces with a link of 1 Gbit/s):
# the share that is hidden, and that which could be, given when gradients are there and what the link
# carries. Then an asynchronous all_reduce of 25 MiB beside a computation of the same duration: 2
# ranks on 2 such hosts, then 2 ranks on one host.
#
#     ./run bench overlap              as root, with iproute2
#
# Step alone a, communication alone b, both at once c: hidden is (a + b - c) / b. What could be is
# computed bucket by bucket: see bench/ddp_step.c. all_reduce alone a, computation alone b, both at
# once c: hidden is (a + b - c) / min(a, b), 1 = all of it. ROUNDS (3), LINK (1gbit), BYTES (25 MiB),
# BATCH (16).
. "$(dirname "$0")/lib.sh"
bench_begin overlap

rounds=${ROUNDS:-3}
bytes=${BYTES:-26214400}
link=${LINK:-1gbit}
batch=${BATCH:-16}
cores=$(nproc)
export cores
bind='[ "$cores" -lt 2 ] || exec taskset -c "$((RANK % cores))" "$0" "$@"; exec "$0" "$@"'

steps_table() {
    what="resnet18 batch $batch, $link"
    bench_case "$what, step" ms "$(column steps 1)"
    bench_case "$what, communication" ms "$(column steps 2)"
    bench_case "$what, both" ms "$(column steps 3)" \
        "$(awk '{ print $1 + $2 }' "$bench_work/steps" | median)" "one after the other"
    bench_case "$what, could be hidden" share "$(column steps 5)"
    bench_case "$what, hidden" share "$(column steps 4)" "$(column steps 5)" "could be" higher
}

bench_table() {
    [ ! -s "$bench_work/steps" ] || steps_table
    for where in "$link" "one host"; do
        [ -s "$bench_work/$where" ] || continue
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
bench_part 7 10
round=0
while bench_round "$round" "$rounds"; do
    TRI_NUM_THREADS=1 hosts_run 1 "$bench_bin/bench_ddp_step" overlap resnet18 "$batch" \
        "$(full_or 9 3)" >>"$bench_work/steps"
    grep '^bucket' "$bench_work/rank0" >&2
    round=$((round + 1))
    echo "resnet18: round $round of $rounds" >&2
done
bench_part 10 10
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
