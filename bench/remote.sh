#!/bin/sh
# remote.sh - forward and backward of a linear layer (512x512, batch 32) at another worker of this
# host, against the same layer here, and where the difference goes: hops, copies, accounts.
#
#     ./run bench remote [--full]
#
# ROUNDS (3; 7 with --full).
. "$(dirname "$0")/lib.sh"
bench_begin remote

rounds=${ROUNDS:-$(full_or 7 3)}
cores=$(nproc)
touch "$bench_work/lines"

# on CORE COMMAND...: bound to it, where there is more than one
on() {
    core=$1
    shift
    if [ "$cores" -gt 1 ]; then taskset -c "$core" "$@"; else "$@"; fi
}

of() {
    awk -F '\t' -v name="$1" '$1 == name { print $2 }' "$bench_work/lines" | median || true
}

bench_table() {
    awk -F '\t' '!seen[$1]++ { print $1 }' "$bench_work/lines" >"$bench_work/cases"
    while IFS= read -r name; do
        case $name in
        *", remote") bench_case "$name" us "$(of "$name")" "$(of "${name%, remote}, here")" here ;;
        *", here") ;;
        *) bench_case "$name" us "$(of "$name")" ;;
        esac
    done <"$bench_work/cases"
    accounts=$(awk -v a="$(of "trained, more")" -v b="$(of "frozen, more")" 'BEGIN { print a - b }')
    bench_case "of that accounts" us "$accounts"
    bench_case "of that else" us "$(awk -v all="$(of "trained, more")" -v hops="$(of hops)" \
        -v copies="$(of copies)" -v accounts="$accounts" \
        'BEGIN { print all - hops - copies - accounts }')"
}

round=0
while bench_round "$round" "$rounds"; do
    rm -f "$bench_work/store"
    on 1 "$bench_bin/bench_remote" serve "$bench_work/store" &
    server=$!
    on 0 "$bench_bin/bench_remote" steps "$bench_work/store" >>"$bench_work/lines"
    wait "$server"
    round=$((round + 1))
    echo "round $round of $rounds" >&2
done

bench_table
bench_end
