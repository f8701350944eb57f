#!/bin/sh
# toy_step.sh - one step of the toy model (linear 10-10, relu, linear 10-5, batch 20, SGD) with two
# data-parallel workers; the peer is PyTorch's DistributedDataParallel over gloo.
. "$(dirname "$0")/lib.sh"
bench_begin toy_step

ours="$bench_bin/trirun --standalone --nproc-per-node 2 $bench_bin/bench_toy_step"
theirs=
rounds=5
if with_peers; then
    need_pytorch
    theirs="$TRI_PEER_PYTHON bench/peer_toy_step.py"
    rounds=3
fi
alternate $rounds "$ours" "$theirs"
bench_case "2 workers" us "$median_a" "$median_b" "${theirs:+PyTorch DDP}"
bench_end
