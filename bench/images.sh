#!/bin/sh
# images.sh - pictures for training, from JPEG files of 500 x 375 pixels to normalised batches of 224
# x 224: images a second of one thread, and what a second one adds. The peer is torchvision's
# ImageFolder under a DataLoader without workers; that of two loader threads is two processes that
# know nothing of each other, i.e. what the machine has. The files are in the page cache.
# BENCH_CPU=1 counts processor time in the first two rows.
. "$(dirname "$0")/lib.sh"
bench_begin images

photos=$bench_work/photos
mkdir "$photos" "$photos/a" "$photos/b"
"$bench_bin/bench_images" make "$photos" "$(full_or 128 64)" || exit 1

peer=
if with_peers; then
    need_pytorch
    peer="$TRI_PEER_PYTHON bench/peer_images.py"
    peer_name=$($peer) || exit 1
fi

bench_part 4 10
alternate 5 "$bench_bin/bench_images train $photos 0" "${peer:+$peer train $photos}"
bench_case "train, 1 thread" images/s "$median_a" "$median_b" "${peer:+$peer_name}" higher
bench_part 7 10
alternate 3 "$bench_bin/bench_images val $photos 0" "${peer:+$peer val $photos}"
bench_case "val, 1 thread" images/s "$median_a" "$median_b" "${peer:+$peer_name}" higher

# two_processes: the sum of both.
cat >"$bench_work/two_processes" <<END
unset BENCH_CPU
"$bench_bin/bench_images" train "$photos" 0 >"$bench_work/one" &
"$bench_bin/bench_images" train "$photos" 0 >"$bench_work/two" && wait \$! || exit 1
cat "$bench_work/one" "$bench_work/two" | awk '{ sum += \$1 } END { print sum }'
END
bench_part 10 10
alternate 5 "unset BENCH_CPU; $bench_bin/bench_images train $photos 2" "sh $bench_work/two_processes"
bench_case "train, 2 loader threads" images/s "$median_a" "$median_b" "2 processes" higher
bench_end
