#!/bin/sh
# make_tiny_imagenet_test.sh - scripts/make_tiny_imagenet writes tiny-imagenet-200's layout, the same
# every time, and never over what is there.
set -eu
LC_ALL=C
export LC_ALL
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-tiny.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
TRI_BUILD=$(dirname "$TRI_TEST_BIN")
export TRI_BUILD

fail() {
    echo "make_tiny_imagenet_test: $*" >&2
    exit 1
}

make() {
    "$TRI_TEST_SOURCE/scripts/make_tiny_imagenet" "$@" 2>"$work/err"
}

# count NUMBER FOLDER: JPEG files in it and below, each of which begins as one.
count() {
    n=$(find "$2" -name '*.JPEG' | wc -l)
    [ "$n" = "$1" ] || fail "$n pictures in $2, not $1"
    find "$2" -name '*.JPEG' | while IFS= read -r file; do
        case $(od -An -tx1 -N3 "$file") in ' ff d8 ff') ;; *) fail "$file is no JPEG" ;; esac
    done
}

# refuses TEXT ARGUMENT...
refuses() {
    text=$1
    shift
    if make "$@"; then fail "$*: done"; fi
    grep -q -- "$text" "$work/err" || fail "$*: \"$text\" is missing in: $(cat "$work/err")"
}

small="--classes 3 --train 4 --val 2 --test 1"
# shellcheck disable=SC2086 # words
make $small --out "$work/a" || fail "$(cat "$work/err")"
count 12 "$work/a/train"
count 6 "$work/a/val/images"
count 3 "$work/a/test/images"
[ "$(sort "$work/a/wnids.txt" | tr '\n' ' ')" = "n00000000 n00000001 n00000002 " ] || fail "classes: $(cat "$work/a/wnids.txt")"
sort -c "$work/a/wnids.txt" 2>/dev/null && fail "the classes are sorted, as the original's are not"
grep -q 'n00000002	pullover' "$work/a/words.txt" || fail "words: $(cat "$work/a/words.txt")"
for class in n00000000 n00000001 n00000002; do
    count 4 "$work/a/train/$class/images"
    [ "$(grep -cE "^${class}_[0-3]\.JPEG(	[0-9]+){4}\$" "$work/a/train/$class/${class}_boxes.txt")" = 4 ] ||
        fail "boxes: $(cat "$work/a/train/$class/${class}_boxes.txt")"
    [ "$(grep -cE "^val_[0-5]\.JPEG	$class(	[0-9]+){4}\$" "$work/a/val/val_annotations.txt")" = 2 ] ||
        fail "annotations: $(cat "$work/a/val/val_annotations.txt")"
done

# The same again, and another one; no picture of val is one of test.
# shellcheck disable=SC2086
make $small --out "$work/b" || fail "$(cat "$work/err")"
diff -r "$work/a" "$work/b" || fail "the same arguments give other files"
# shellcheck disable=SC2086
make $small --seed 1 --size 32 --out "$work/c" || fail "$(cat "$work/err")"
cmp -s "$work/a/train/n00000000/images/n00000000_0.JPEG" "$work/c/train/n00000000/images/n00000000_0.JPEG" &&
    fail "another seed gives the same files"
[ "$(cksum "$work"/a/val/images/* "$work"/a/test/images/* | cut -d' ' -f1 | sort -u | wc -l)" = 9 ] ||
    fail "pictures of val are in test"

# As ImageNet, without lists.
make --layout folders --classes 2 --train 3 --val 2 --test 0 --out "$work/d" || fail "$(cat "$work/err")"
count 3 "$work/d/train/n00000001"
count 2 "$work/d/val/n00000000"
[ -z "$(find "$work/d" -name '*.txt' -o -name test)" ] || fail "more than pictures: $(find "$work/d")"

# What is there stays, and what fails leaves nothing.
refuses "is there already" --out "$work/a"
diff -r "$work/a" "$work/b" || fail "what was there has changed"
refuses "at most 10, since Fashion-MNIST has ten kinds" --classes 11 --out "$work/e"
refuses "at most 1000 together" --val 600 --test 600 --out "$work/e"
refuses "tiny (as tiny-imagenet-200) or folders" --layout flat --out "$work/e"
refuses "out DIR is missing" --train 3
refuses "no train-images-idx3-ubyte" --data "$work/none" --out "$work/e"
[ ! -e "$work/e" ] || fail "a failure left $(find "$work/e")"
make --help | grep -q -- --layout || fail "no help"
