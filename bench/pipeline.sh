#!/bin/sh
# pipeline.sh - a training step of a GPT (8 layers of width 384, batch 8 in 8 micro-batches; and one of
# width 128, where what is around the products counts) in two stages by two workers of one thread
# each, with 1F1B: milliseconds, and which share is left of what the machine and the bubble allow:
# 16/9 of the speed of two workers that each train a whole network of their own. The peer is
# torch.distributed.pipelining over Gloo, cut alike.
#
#     ./run bench pipeline --peers
#
# ROUNDS (5) runs of each, TURNS (2) in each of them.
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

# rows NAME WHAT
rows() {
    [ ! -s "$bench_work/torch_$1" ] || peer="torch pipelining, Gloo"
    bench_case "$2, two stages" ms "$(column "$1" 2)" "$(column "torch_$1" 2)" "$peer"
    bench_case "$2, two stages" "of bound" "$(column "$1" 1)" "$(column "torch_$1" 1)" "$peer" higher
    bench_case "$2, whole, side by side" ms "$(column "$1" 3)" "$(column "torch_$1" 3)" "$peer"
    bench_case "$2, whole, one alone" ms "$(column "$1" 4)"
}

bench_table() {
    rows full "gpt 8x384"
    rows small "gpt 8x128"
}

# measure SIZE STEPS
measure() {
    GPT_SIZE=$1 "$bench_bin/trirun" --standalone --nproc-per-node 2 \
        "$bench_bin/bench_cut_gpt" pipeline 8 "$turns" "$2" >>"$bench_work/$1"
    ! with_peers || GPT_SIZE=$1 "$TRI_PEER_PYTHON" -m torch.distributed.run --standalone \
        --nproc-per-node 2 bench/peer_cut_gpt.py pipeline 8 "$turns" "$2" >>"$bench_work/torch_$1"
}

round=0
while bench_round $round "$rounds"; do
    measure full 1
    measure small 10
    round=$((round + 1))
    echo "round $round of $rounds" >&2
done

bench_table
bench_end
