#!/bin/sh
# pipeline.sh - a training step of a GPT (8 layers of width 384, batch 8 in 8 micro-batches) in two
# stages by two workers of one thread each, with 1F1B: milliseconds, and which share is left of what
# the machine and the bubble allow: 16/9 of the speed of two workers that each train a whole network
# of their own. The peer is torch.distributed.pipelining over Gloo, cut alike.
#
#     ./run bench pipeline --peers
#
# ROUNDS (5) runs of each, TURNS (3) in each of ours.
. "$(dirname "$0")/lib.sh"
bench_begin pipeline

rounds=${ROUNDS:-5}
turns=${TURNS:-$(full_or 5 2)}
export TRI_NUM_THREADS=1 OMP_NUM_THREADS=1
export TRI_LOG=error # one waits for long while the other trains alone

peer=
if with_peers; then
    need_pytorch
fi

# column NAME K: of what was measured under NAME, the median of column K.
column() {
    [ ! -s "$bench_work/$1" ] || awk -v k="$2" '{ print $k }' "$bench_work/$1" | median
}

bench_table() {
    [ ! -s "$bench_work/torch" ] || peer="torch pipelining, Gloo"
    bench_case "gpt 8x384, two stages" ms "$(column ours 2)" "$(column torch 2)" "$peer"
    bench_case "gpt 8x384, two stages" "of bound" "$(column ours 1)" "$(column torch 1)" "$peer" higher
    bench_case "whole, two side by side" ms "$(column ours 3)" "$(column torch 3)" "$peer"
    bench_case "whole, one alone" ms "$(column ours 4)"
}

round=0
while bench_round $round "$rounds"; do
    "$bench_bin/trirun" --standalone --nproc-per-node 2 \
        "$bench_bin/bench_cut_gpt" pipeline 8 "$turns" 1 >>"$bench_work/ours"
    ! with_peers || "$TRI_PEER_PYTHON" -m torch.distributed.run --standalone --nproc-per-node 2 \
        bench/peer_cut_gpt.py pipeline 8 "$turns" 1 >>"$bench_work/torch"
    round=$((round + 1))
    echo "round $round of $rounds" >&2
done

bench_table
bench_end
