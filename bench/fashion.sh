#!/bin/sh
# fashion.sh - the main job against the same model and recipe in PyTorch DDP: two workers on two
# cores, training time without evaluation, test accuracy; medians over seeds.
#
#     ./run bench fashion [--peers]
#
# TRI_BENCH_SEEDS=N: so many seeds instead of 3 (1 without --full, whose accuracy is one sample). TRI_BENCH_PEER_MODES: the modes of PyTorch that
# are tried for an eighth of an epoch each; the fastest one trains the whole recipe.
. "$(dirname "$0")/lib.sh"
bench_begin fashion

seeds=${TRI_BENCH_SEEDS:-$(full_or 3 1)}
modes=${TRI_BENCH_PEER_MODES:-contiguous channels_last compile bf16 bf16_channels_last}
recipe="--epochs 5 --batch-size 128 --lr 0.1 --weight-decay 0.0005"
peer_recipe="--epochs 5 --batch 128 --lr 0.1 --weight-decay 0.0005 --shift 0 --warm 0.2 --anneal linear"
workers=2

# ours SEED: trains; appends to times and accuracies.
ours() {
    "$bench_bin/trirun" --standalone --nproc-per-node $workers "$bench_bin/fashion" $recipe \
        --seed "$1" --out "$bench_work/run-$1" >"$bench_work/log" 2>&1 || {
        cat "$bench_work/log" >&2
        exit 1
    }
    # The rate is that of training alone; each record is of equally many samples.
    awk -F '[:,}]' '
        { for (i = 1; i < NF; i += 2) value[$i] = $(i + 1) }
        /samples_per_s/ { inverse += 1 / value["\"samples_per_s\""]; n++ }
        END { printf "%.2f %s\n", value["{\"step\""] * 128 * inverse / n, value["\"test_accuracy\""] }
    ' "$bench_work/run-$1/metrics.jsonl" >"$bench_work/last"
    cut -d ' ' -f 1 "$bench_work/last" >>"$bench_work/times"
    cut -d ' ' -f 2 "$bench_work/last" >>"$bench_work/accuracies"
    echo "seed $1: $(tail -n 1 "$bench_work/accuracies") in $(tail -n 1 "$bench_work/times") s" >&2
}

# peer ARGS...: one run of PyTorch; its JSON line is the answer.
peer() {
    "$TRI_PEER_PYTHON" bench/peer_fashion.py --workers $workers $peer_recipe "$@" 2>"$bench_work/peer-log" |
        tail -n 1
}

field() { # field NAME: of the JSON object on standard input
    sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"
}

# The fastest mode, by the second epoch of a short run; one that fails (no compiler) is left out.
fastest_mode() {
    : >"$bench_work/modes"
    for mode in $modes; do
        seconds=$(peer --mode "$mode" --limit 7680 --epochs 2 |
            sed -n 's/.*"epochs": \[[0-9.]*, \([0-9.]*\)\].*/\1/p')
        echo "PyTorch, $mode: ${seconds:-failed} s for 7680 samples" >&2
        [ -z "$seconds" ] || echo "$seconds $mode" >>"$bench_work/modes"
    done
    sort -g "$bench_work/modes" | sed -n '1s/.* //p'
}

bench_table() {
    peer_time= peer_accuracy=
    if [ -s "$bench_work/peer-times" ]; then
        peer_time=$(median <"$bench_work/peer-times")
        peer_accuracy=$(median <"$bench_work/peer-accuracies")
    fi
    bench_case "test accuracy" "0 to 1" "$(median <"$bench_work/accuracies")" "$peer_accuracy" "$peer_name" higher
    bench_case "training time" s "$(median <"$bench_work/times")" "$peer_time" "$peer_name"
}

peer_name=
if with_peers; then
    need_pytorch
    mode=$(fastest_mode)
    [ -n "$mode" ] || {
        cat "$bench_work/peer-log" >&2
        exit 1
    }
    peer_name="PyTorch DDP $mode"
fi
seed=0
while bench_round $seed "$seeds"; do
    ours $seed
    if with_peers; then
        peer --mode "$mode" --seed $seed >"$bench_work/peer-last"
        field seconds <"$bench_work/peer-last" >>"$bench_work/peer-times"
        field accuracy <"$bench_work/peer-last" >>"$bench_work/peer-accuracies"
        echo "seed $seed, $peer_name: $(cat "$bench_work/peer-last")" >&2
    fi
    seed=$((seed + 1))
done
bench_table
bench_end
