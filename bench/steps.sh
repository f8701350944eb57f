#!/bin/sh
# steps.sh - training steps of one process on one thread: the toy model, the Fashion-MNIST network
# and ResNet-18; the peer is PyTorch, in channels_last where there are images.
. "$(dirname "$0")/lib.sh"
bench_begin steps
export TRI_NUM_THREADS=1 OMP_NUM_THREADS=1

peer=
if with_peers; then
    need_pytorch
    peer="$TRI_PEER_PYTHON bench/peer_steps.py"
fi
# case MODEL BATCH STEPS FORMAT
measure() {
    alternate 3 "$bench_bin/bench_steps $1 $2 $3 3" "${peer:+$peer $1 $2 $3 3 $4}"
    bench_case "$1 batch $2" us "$median_a" "$median_b" "${peer:+PyTorch $4}"
}
measure toy 20 2000 contiguous
measure fashion 64 10 channels_last
measure fashion 256 3 channels_last
measure resnet18 16 1 channels_last
bench_end
