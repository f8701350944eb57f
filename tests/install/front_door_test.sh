#!/bin/sh
# front_door_test.sh - `./run VERB --help` tells of that verb, in a tree that nobody has built, and
# builds nothing.
set -eu
tree=$TRI_TEST_SOURCE
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-front.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() {
    echo "front_door_test: $*" >&2
    exit 1
}

mkdir -p "$work/tree/scripts" "$work/tree/examples"
cp "$tree/run" "$work/tree/"
cp -R "$tree/scripts/lib" "$work/tree/scripts/"
cp -R "$tree/bench" "$work/tree/"
cp "$tree/examples/fashion.c" "$tree/examples/fit_options.h" "$work/tree/examples/"
cd "$work/tree"

# has TEXT: in what the last verb said
has() {
    grep -qF -e "$1" "$work/said" || fail "./run $verb $option: \"$1\" is missing in: $(cat "$work/said")"
}

ls >"$work/before"
for verb in train test fresh bench bits lint format docs; do
    for option in --help -h; do
        ./run "$verb" "$option" >"$work/said" 2>&1 </dev/null || fail "./run $verb $option: $(cat "$work/said")"
        [ "$(head -n 1 "$work/said")" = "usage: ./run $verb [ARGS]" ] || fail "$verb: $(cat "$work/said")"
        [ "$(grep -c "^  $verb " "$work/said")" -eq 1 ] || fail "$verb: $(cat "$work/said")"
    done
done
verb=bench
./run bench --full --help >"$work/said"
has "--peers"
has " toy_step"
has " collectives"
verb=train
./run train --epochs 1 --help >"$work/said"
"$TRI_TEST_BIN/fashion" --help | grep '^  --' | grep -v '^  --help ' >"$work/options"
[ "$(wc -l <"$work/options")" -gt 10 ] || fail "fashion --help: $(cat "$work/options")"
while IFS= read -r line; do
    has "$line"
done <"$work/options"
has "  --precision NAME "
verb=nosuch
option=
./run nosuch >"$work/said" 2>&1 && fail "./run nosuch succeeded"
[ "$(tail -n 1 "$work/said")" = "run: unknown verb nosuch" ] || fail "nosuch: $(cat "$work/said")"
has "usage: ./run VERB"
verb=test
./run test --help >"$work/said"
has "--preset NAME"
! grep -q "building" "$work/said" || fail "it built"
ls | cmp -s "$work/before" - || fail "left behind: $(ls)"
