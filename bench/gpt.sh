#!/bin/sh
# gpt.sh - training of a small GPT (6 layers, width 384, context 256, batch 8) in one process:
# tokens a second, which share of the fused multiply-adds that the processor can do, and how much
# longer than the second the first step of 12 layers takes. The peer is PyTorch in the mode that is
# fastest on this machine: fused attention, eager or compiled, or attention from products.
. "$(dirname "$0")/lib.sh"
bench_begin gpt

peer=
mode=
if with_peers; then
    need_pytorch
    peer="$TRI_PEER_PYTHON bench/peer_gpt.py"
    mode=$(OMP_NUM_THREADS=2 $peer --choose sdpa eager $(full_or compile "")) || exit 1
fi
# measure THREADS TENTHS: TENTHS of the time have passed when it should be done
measure() {
    threads="$1 thread$([ "$1" = 1 ] || echo s)"
    run="env TRI_NUM_THREADS=$1 OMP_NUM_THREADS=$1"
    bench_part "$2" 10
    : >"$bench_work/shares"
    alternate 5 "$run $bench_bin/bench_gpt_step 1 3 | tee -a $bench_work/shares | cut -d ' ' -f 1" \
        "${peer:+$run $peer 1 3 $mode}"
    bench_case "gpt 6x384, $threads, f32" tokens/s "$median_a" "$median_b" \
        "${peer:+PyTorch $mode}" higher
    bench_case "share of the peak, $threads" "0 to 1" \
        "$(cut -d ' ' -f 2 <"$bench_work/shares" | median)" "" "" higher
}
measure 1 6
measure 2 9
# What a run waits for before it trains: plans, kernels, pages that are touched for the first time.
bench_part 10 10
alternate 3 "env TRI_NUM_THREADS=2 $bench_bin/bench_gpt_step 1 1 12 | cut -d ' ' -f 3" ""
bench_case "first step of 12 layers, over the second" s "$median_a"
bench_end
