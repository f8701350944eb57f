#!/bin/sh
# imagenet.sh - one epoch of examples/imagenet.c: JPEGs of 10 classes (100 to learn from and 20 to test
# of each) to 224 x 224, ResNet-18, two workers of one thread, 32 images of each to an update,
# training and evaluation. The second epoch counts, so that plans and compilers are ready. The peer is
# the elastic example of PyTorch with DDP over Gloo, in the mode that is fastest here: eager or
# compiled, contiguous or channels_last. The last row is the step alone (bench/steps.sh) in this run.
#
#     ./run bench imagenet [--peers]
#
# ROUNDS (3; without --full as many as fit), MODES.
. "$(dirname "$0")/lib.sh"
bench_begin imagenet
export TRI_NUM_THREADS=1 OMP_NUM_THREADS=1

images=$bench_work/images
scripts/make_tiny_imagenet --layout folders --classes 10 --train 100 --val 20 --test 0 --out "$images" >"$bench_work/log" 2>&1 || {
    cat "$bench_work/log" >&2
    exit 1
}
modes=${MODES:-contiguous channels_last $(full_or "compile compile_channels_last" "")}

# ours: the seconds of the second epoch, from the line of the first one's checkpoint to its accuracy.
cat >"$bench_work/ours" <<END
rm -rf "$bench_work/run"
"$bench_bin/trirun" --standalone --nproc-per-node 2 "$bench_bin/imagenet" --epochs 2 --print-freq 1000 \\
    --checkpoint-file "$bench_work/run" "$images" 2>"$bench_work/log" | while IFS= read -r line; do
    case \$line in
    "=> saved checkpoint for epoch 0"*) begin=\$(date +%s.%N) ;;
    " * Acc@1"*) [ -z "\${begin:-}" ] || echo "\$begin \$(date +%s.%N)" ;;
    esac
done | awk '{ printf "%.3f\\n", \$2 - \$1 } END { exit !NR }' || { cat "$bench_work/log" >&2; exit 1; }
END

# peer MODE ARGS..: what peer_imagenet.py prints.
cat >"$bench_work/peer" <<END
"\$TRI_PEER_PYTHON" -m torch.distributed.run --standalone --nproc_per_node 2 bench/peer_imagenet.py \\
    "\$1" "$images" \$2 \$3 \$4 \$5 2>"$bench_work/peer-log" || echo nan
END

bench_table() {
    bench_case "imagenet, one epoch" s "$(median <"$bench_work/a")" "$(median <"$bench_work/b" 2>/dev/null)" "$peer_name"
    bench_case "resnet18 batch 32, 1 thread" us "$step" "$step_peer" "$step_name"
}

peer_name= step= step_peer= step_name=
if with_peers; then
    need_pytorch
    export TRI_PEER_PYTHON
    "$TRI_PEER_PYTHON" bench/peer_imagenet.py --help >"$bench_work/log" 2>&1 || {
        cat "$bench_work/log" >&2
        echo "bench: imagenet's peer needs torchvision (TRI_PEER_PYTHON)" >&2
        exit 1
    }
    for mode in $modes; do
        echo "$(sh "$bench_work/peer" "$mode" --epochs 2 --limit 3) $mode"
    done >"$bench_work/modes"
    sed 's/^/PyTorch, 3 batches: /' "$bench_work/modes" >&2
    mode=$(grep -v nan "$bench_work/modes" | sort -g | sed -n '1s/.* //p')
    [ -n "$mode" ] || {
        tail -n 5 "$bench_work/peer-log" >&2
        exit 1
    }
    peer_name="PyTorch DDP $mode"
    step_name="PyTorch $mode"
    step_peer=$("$TRI_PEER_PYTHON" bench/peer_steps.py resnet18 32 1 3 f32 "$mode")
fi
step=$("$bench_bin/bench_steps" resnet18 32 1 3 f32)
alternate "${ROUNDS:-3}" "sh $bench_work/ours" "${peer_name:+sh $bench_work/peer $mode}"
bench_table
bench_end
