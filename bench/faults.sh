#!/bin/sh
# faults.sh - from SIGKILL of a rank, at a random moment under load, to the error in the hands of
# each survivor: KILLS (200) for each engine, with a histogram. Ends with an error if a survivor
# hangs for 10 s, or is not told who is lost.
. "$(dirname "$0")/lib.sh"
bench_begin faults

kills=${KILLS:-200}
ranks=3
for engine in shm tcp; do
    i=0
    while [ "$i" -lt "$kills" ]; do
        victim=$((i % ranks))
        waits=
        rank=0
        while [ "$rank" -lt "$ranks" ]; do
            if [ "$rank" -eq "$victim" ]; then
                "$bench_bin/bench_faults" "$engine" "$bench_work/store" "$rank" "$ranks" "$victim" "$i" \
                    2>/dev/null &
            else
                timeout 10 "$bench_bin/bench_faults" "$engine" "$bench_work/store" "$rank" "$ranks" \
                    "$victim" "$i" >"$bench_work/rank$rank" &
                waits="$waits $!"
            fi
            rank=$((rank + 1))
        done
        for one in $waits; do
            wait "$one" || {
                echo "bench: kill $i of rank $victim, engine $engine: a survivor failed or hangs" >&2
                exit 1
            }
        done
        wait
        rank=0
        while [ "$rank" -lt "$ranks" ]; do
            [ "$rank" -eq "$victim" ] || cat "$bench_work/rank$rank" >>"$bench_work/$engine"
            rank=$((rank + 1))
        done
        rm -f "$bench_work/store"
        i=$((i + 1))
    done
    sort -g "$bench_work/$engine" >"$bench_work/sorted"
    # Bars of doubling width, in ms.
    awk -v engine="$engine" '
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
    bench_case "$engine $ranks ranks, median" ms "$(quantile 0.5)"
    bench_case "$engine $ranks ranks, 99 %" ms "$(quantile 0.99)"
    bench_case "$engine $ranks ranks, worst" ms "$(quantile 1)"
done
bench_end
