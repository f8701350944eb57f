#!/bin/sh
# ddp_scaling.sh - two workers of one thread each: which share of their speed data-parallel training
# leaves them, ResNet-18 (batch 16 of 3x224x224) and a GPT of 6 layers of width 384 (batch 8, as in
# gpt.sh). With DDP and without it in turn, in the same two processes: without, each worker trains a
# replica of its own beside the other one, so memory and caches are as busy. The peer is PyTorch's
# DistributedDataParallel over Gloo.
#
#     ./run bench ddp_scaling --peers
#
# ROUNDS (3) runs of each, MODELS (resnet18 gpt), STEPS (4) before it is the other's turn.
. "$(dirname "$0")/lib.sh"
bench_begin ddp_scaling

rounds=${ROUNDS:-3}
steps=${STEPS:-4}
models=${MODELS:-resnet18 gpt}
turns=$(full_or 5 2)
export TRI_NUM_THREADS=1 OMP_NUM_THREADS=1

if with_peers; then
    need_pytorch
fi

batch_of() {
    if [ "$1" = gpt ]; then echo 8; else echo 16; fi
}

bench_table() {
    for model in $models; do
        what="$model batch $(batch_of "$model")"
        peer=
        [ ! -s "$bench_work/peer_$model" ] || peer="PyTorch DDP, Gloo"
        bench_case "$what" "of alone" "$(column "$model" 1)" "$(column "peer_$model" 1)" "$peer" higher
        bench_case "$what, DDP" ms "$(column "$model" 2)" "$(column "peer_$model" 2)" "$peer"
        bench_case "$what, alone" ms "$(column "$model" 3)" "$(column "peer_$model" 3)" "$peer"
    done
}

part=1
for model in $models; do
    bench_part $part "$(echo "$models" | wc -w)"
    part=$((part + 1))
    round=0
    while bench_round $round "$rounds"; do
        "$bench_bin/trirun" --standalone --nproc-per-node 2 \
            "$bench_bin/bench_ddp_step" share "$model" "$(batch_of "$model")" "$turns" "$steps" >>"$bench_work/$model"
        ! with_peers || "$TRI_PEER_PYTHON" -m torch.distributed.run --standalone --nproc-per-node 2 \
            bench/peer_ddp.py share "$model" "$(batch_of "$model")" "$turns" "$steps" >>"$bench_work/peer_$model"
        round=$((round + 1))
        echo "$model: round $round of $rounds" >&2
    done
done

bench_table
bench_end
