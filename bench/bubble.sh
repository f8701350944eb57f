#!/bin/sh
# bubble.sh - how long two workers of one thread wait in a step of the GPT of pipeline.sh, from the
# timelines that they record: with 1F1B, zero bubble and ZBV. The share of the step that a worker
# computes nothing, mean over both, in per cent.
#
#     ./run bench bubble
#
# ROUNDS (5) runs of each.
. "$(dirname "$0")/lib.sh"
bench_begin bubble

rounds=${ROUNDS:-5}
export TRI_NUM_THREADS=1 OMP_NUM_THREADS=1
export TRI_LOG=error

# idle SCHEDULE: trains, and draws the last step.
idle() {
    rm -f "$bench_work"/trace-*.json
    TRI_TRACE="$bench_work/trace-%p.json" "$bench_bin/trirun" --standalone --nproc-per-node 2 \
        "$bench_bin/bench_cut_gpt" "$1" 8 1 2 >/dev/null
    "$bench_bin/trireme" plot --timeline "$bench_work"/trace-*.json -o "$bench_work/$1.svg" |
        awk '{ for (i = 2; i <= NF; i++) if ($(i - 1) == "idle") { sum += $i; n++ } }
             END { print sum / n }' >>"$bench_work/$1"
}

bench_table() {
    for schedule in pipeline zero_bubble zbv; do
        [ ! -s "$bench_work/$schedule" ] ||
            bench_case "gpt 8x384, $schedule" "% idle" "$(median <"$bench_work/$schedule")"
    done
}

round=0
while bench_round $round "$rounds"; do
    for schedule in pipeline zero_bubble zbv; do
        idle $schedule
    done
    round=$((round + 1))
    echo "round $round of $rounds" >&2
done

bench_table
bench_end
