#!/bin/sh
# zero.sh - a training step of a GPT (6 layers of width 384, batch 8, as in gpt.sh) by two workers of
# one thread each that divide states of the optimizer (zero1), gradients (zero2) and parameters (zero3):
# milliseconds, and which share of DDP's speed is left, with both in turn in the same two processes.
# The peer is FSDP2 of PyTorch over Gloo, which shards each block, against its DDP in the same way.
#
#     ./run bench zero --peers
#
# ROUNDS (5) runs of each, STAGES (zero1 zero2 zero3), STEPS (4) before it is the other's turn, BATCH (8).
# BENCH_CPU=1 counts processor time, of the slower worker, instead of time that passes: for busy machines.
. "$(dirname "$0")/lib.sh"
bench_begin zero

rounds=${ROUNDS:-5}
stages=${STAGES:-zero1 zero2 zero3}
steps=${STEPS:-4}
batch=${BATCH:-8}
turns=$(full_or 5 1)
export TRI_NUM_THREADS=1 OMP_NUM_THREADS=1

if with_peers; then
    need_pytorch
fi

bench_table() {
    peer=
    [ ! -s "$bench_work/fsdp" ] || peer="PyTorch FSDP2, Gloo"
    for stage in $stages; do
        bench_case "gpt batch $batch, $stage" ms "$(column "$stage" 2)" "$(column fsdp 2)" "$peer"
        bench_case "gpt batch $batch, $stage" "of DDP" "$(column "$stage" 1)" "$(column fsdp 1)" \
            "$peer" higher
    done
    bench_case "gpt batch $batch, DDP" ms "$(column "${stages%% *}" 3)" "$(column fsdp 3)" \
        "${peer:+PyTorch DDP, Gloo}"
}

round=0
while bench_round $round "$rounds"; do
    for stage in $stages; do
        "$bench_bin/trirun" --standalone --nproc-per-node 2 \
            "$bench_bin/bench_ddp_step" "$stage" gpt "$batch" "$turns" "$steps" >>"$bench_work/$stage"
    done
    ! with_peers || "$TRI_PEER_PYTHON" -m torch.distributed.run --standalone --nproc-per-node 2 \
        bench/peer_ddp.py fsdp gpt "$batch" "$turns" "$steps" >>"$bench_work/fsdp"
    round=$((round + 1))
    echo "round $round of $rounds" >&2
done

bench_table
bench_end
