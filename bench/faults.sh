#!/bin/sh
# faults.sh - from SIGKILL of a rank, at a random moment under load, to the error in the hands of
# each survivor: KILLS (200) for each engine, with a histogram, and BIG_KILLS (10) of a rank that has
# BIG_MIB (8192) of memory in use, which the kernel frees before it closes the rank's sockets. Ends
# with an error if a survivor hangs for 300 s, or is not told who is lost.
. "$(dirname "$0")/lib.sh"
bench_begin faults

ranks=3
# cases NAME ENGINE KILLS [MIB]
cases() {
    name=$1 engine=$2 kills=$3 mib=${4:-}
    i=0
    while bench_round "$i" "$kills"; do
        victim=$((i % ranks))
        waits=
        rank=0
        while [ "$rank" -lt "$ranks" ]; do
            if [ "$rank" -eq "$victim" ]; then
                "$bench_bin/bench_faults" "$engine" "$bench_work/store" "$rank" "$ranks" "$victim" "$i" \
                    $mib 2>/dev/null &
            else
                timeout 300 "$bench_bin/bench_faults" "$engine" "$bench_work/store" "$rank" "$ranks" \
                    "$victim" "$i" $mib >"$bench_work/rank$rank" &
                waits="$waits $!"
            fi
            rank=$((rank + 1))
        done
        for one in $waits; do
            wait "$one" || {
                echo "bench: kill $i of rank $victim, $name: a survivor failed or hangs" >&2
                exit 1
            }
        done
        wait
        rank=0
        while [ "$rank" -lt "$ranks" ]; do
            [ "$rank" -eq "$victim" ] || cat "$bench_work/rank$rank" >>"$bench_work/$name"
            rank=$((rank + 1))
        done
        rm -f "$bench_work/store"
        i=$((i + 1))
    done
    sort -g "$bench_work/$name" >"$bench_work/sorted"
    # Bars of doubling width, in ms.
    awk -v engine="$name" '
        { ms = $1 / 1000; k = 0; for (to = 0.125; to <= ms; to *= 2) k++; in_bar[k]++; if (k > last) last = k }
        END {
            printf "%s, %d waits\n", engine, NR
            for (k = 0; k <= last; k++) {
                bar = ""
                for (j = 0; j < in_bar[k] * 50 / NR; j++) bar = bar "#"
                printf "  below %8.3f ms %5d %s\n", 0.125 * 2 ^ k, in_bar[k], bar
            }
        }' "$bench_work/sorted"
    # quantile SHARE: of the sorted times, in ms
    quantile() {
        awk -v share="$1" '{ v[NR] = $1 } END { i = int(NR * share) + 1; if (i > NR) i = NR; print v[i] / 1000 }' \
            "$bench_work/sorted"
    }
    bench_case "$name $ranks ranks, median" ms "$(quantile 0.5)"
    bench_case "$name $ranks ranks, 99 %" ms "$(quantile 0.99)"
    bench_case "$name $ranks ranks, worst" ms "$(quantile 1)"
}

bench_part 1 3
cases shm shm "${KILLS:-200}"
bench_part 2 3
cases tcp tcp "${KILLS:-200}"
bench_part 1 1
big=${BIG_MIB:-8192}
cases "shm, $big MiB" shm "${BIG_KILLS:-10}" "$big"
bench_end
