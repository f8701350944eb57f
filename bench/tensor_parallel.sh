#!/bin/sh
# tensor_parallel.sh - a training step of a GPT (6 layers of width 384, batch 8, as in gpt.sh) whose
# layers are cut over two workers of one thread each: milliseconds, and which share is left of the
# speed of two workers that each train a whole network of their own. The peer is PyTorch's
# parallelize_module over Gloo, with the same rules.
#
#     ./run bench tensor_parallel --peers
#
# ROUNDS (5) runs of each, TURNS (3) in each of them.
. "$(dirname "$0")/lib.sh"
bench_begin tensor_parallel

rounds=${ROUNDS:-5}
turns=${TURNS:-$(full_or 5 2)}
export TRI_NUM_THREADS=1 OMP_NUM_THREADS=1
export TRI_LOG=error # one waits for long while the other trains alone

peer=
if with_peers; then
    need_pytorch
fi

bench_table() {
    [ ! -s "$bench_work/torch" ] || peer="torch DTensor, Gloo"
    bench_case "gpt 6x384, cut layers" ms "$(column ours 2)" "$(column torch 2)" "$peer"
    bench_case "gpt 6x384, cut layers" "of bound" "$(column ours 1)" "$(column torch 1)" "$peer" higher
    bench_case "whole, two side by side" ms "$(column ours 3)" "$(column torch 3)" "$peer"
    bench_case "whole, one alone" ms "$(column ours 4)"
}

round=0
while bench_round $round "$rounds"; do
    "$bench_bin/trirun" --standalone --nproc-per-node 2 \
        "$bench_bin/bench_cut_gpt" tensor 6 "$turns" 1 >>"$bench_work/ours"
    ! with_peers || "$TRI_PEER_PYTHON" -m torch.distributed.run --standalone --nproc-per-node 2 \
        bench/peer_cut_gpt.py tensor 6 "$turns" 1 >>"$bench_work/torch"
    round=$((round + 1))
    echo "round $round of $rounds" >&2
done

bench_table
bench_end
