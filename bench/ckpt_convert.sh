#!/bin/sh
# ckpt_convert.sh - `trireme ckpt convert` of 1 GB, one tensor of 400 MB in it, from safetensors to
# torch.save and back, against cp and sync of the file that it reads, in memory (/dev/shm); and the
# most memory that it had. GNU time tells both.
. "$(dirname "$0")/lib.sh"
[ ! -w /dev/shm ] || TMPDIR=/dev/shm
bench_begin ckpt_convert

# safetensors_file FILE: 400 MB and 60 tensors of 10 MB, of random bits.
safetensors_file() {
    header=$(awk 'BEGIN {
        printf "{\"big\":{\"dtype\":\"F32\",\"shape\":[100000000],\"data_offsets\":[0,400000000]}"
        for (i = 0; i < 60; i++)
            printf ",\"w%d\":{\"dtype\":\"F32\",\"shape\":[2500000],\"data_offsets\":[%d,%d]}", i,
                400000000 + i * 10000000, 410000000 + i * 10000000
        printf "}" }')
    n=$(((${#header} + 7) / 8 * 8))
    printf "$(printf '\\%03o\\%03o\\0\\0\\0\\0\\0\\0' $((n % 256)) $((n / 256)))%-*s" "$n" "$header" >"$1"
    head -c 1000000000 /dev/urandom >>"$1"
}

# seconds COMMAND...: a line of shell that prints how long it took.
seconds() {
    echo "env time -f %e sh -c '$*' 2>&1 >/dev/null"
}

tool=$bench_bin/trireme
safetensors_file "$bench_work/a.safetensors"
"$tool" ckpt convert "$bench_work/a.safetensors" "$bench_work/a.pth" >"$bench_work/out"
for pair in a.safetensors:b.pth a.pth:b.safetensors; do
    from=$bench_work/${pair%:*} to=$bench_work/${pair#*:}
    alternate "$(full_or 9 3)" "$(seconds "rm -f $to; exec $tool ckpt convert $from $to")" \
        "$(seconds "rm -f $to; cp $from $to; sync $to")"
    bench_case "${pair%:*} to ${pair##*.}" s "$median_a" "$median_b" "cp and sync"
    rm -f "$to"
    env time -f %M "$tool" ckpt convert "$from" "$to" 2>"$bench_work/peak" >"$bench_work/out"
    bench_case "${pair%:*} to ${pair##*.}, peak" KB "$(tail -n 1 "$bench_work/peak")"
    rm -f "$to"
done
bench_end
