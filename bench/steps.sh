#!/bin/sh
# steps.sh - training steps of one process on one thread: the toy model, two layers of an LSTM, the
# Fashion-MNIST network and ResNet-18, the last also in bf16. The peer is PyTorch in the mode that
# is fastest for the model on this machine: contiguous or channels_last; with --full also compiled.
. "$(dirname "$0")/lib.sh"
bench_begin steps
export TRI_NUM_THREADS=1 OMP_NUM_THREADS=1

peer=
if with_peers; then
    need_pytorch
    peer="$TRI_PEER_PYTHON bench/peer_steps.py"
fi
# measure MODEL BATCH STEPS f32|bf16 TENTHS: TENTHS of the time have passed when it should be done
measure() {
    mode=
    modes="contiguous $(full_or compile "")"
    [ "$1" = toy ] || [ "$1" = lstm ] || modes="$modes channels_last $(full_or compile_channels_last "")"
    [ -z "$peer" ] || mode=$($peer --choose "$1" "$2" "$4" $modes) || exit 1
    bench_part "$5" 10
    alternate 3 "$bench_bin/bench_steps $1 $2 $3 3 $4" "${peer:+$peer $1 $2 $3 3 $4 $mode}"
    bench_case "$1 batch $2, 1 thread, $4" us "$median_a" "$median_b" "${peer:+PyTorch $mode}"
}
measure toy 20 2000 f32 1
measure lstm 20 10 f32 1
measure fashion 64 10 f32 2
measure fashion 256 3 f32 3
measure resnet18 16 1 f32 7
measure resnet18 16 1 bf16 10
bench_end
