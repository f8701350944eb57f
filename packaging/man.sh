#!/bin/sh
# man.sh OUT VERSION BIN - writes the manual pages into OUT/man1, man3 and man7:
#
#   include/trireme/x.h    a page of section 3 for the header's noun, and one for each function or
#                          group of functions, so that `man tri_all_reduce` shows that alone
#   docs/man/NAME.N.md     page NAME of section N; a line `help: PROGRAM [ARGS]` stands for what
#                          BIN/PROGRAM [ARGS] --help prints
#   docs/USING.md          trireme of section 7
set -eu
cd "$(dirname "$0")/.."
out=$1 version=$2 bin=$3
rm -rf "$out/man1" "$out/man3" "$out/man7"
mkdir -p "$out/man1" "$out/man3" "$out/man7"

# noun HEADER: what its page is called after tri_.
noun() {
    case $1 in
    nn) echo module ;;
    optim) echo optimizer ;;
    data) echo loader ;;
    device_queue) echo queue ;;
    parallel) echo ddp ;;
    *) echo "$1" ;;
    esac
}

# markdown FILE NAME SECTION
markdown() {
    while IFS= read -r line; do
        case $line in
        'help: '*)
            set -- "$1" "$2" "$3" ${line#help: }
            shift 3
            program=$1
            shift
            echo '```'
            "$bin/$program" "$@" --help
            echo '```'
            set -- "$file" "$name" "$section"
            ;;
        *) printf '%s\n' "$line" ;;
        esac
    done <"$1" | awk -v name="$2" -v section="$3" -v version="$version" \
        -f packaging/man_markdown.awk >"$out/man$3/$2.$3"
}

for file in docs/man/*.[0-9].md; do
    name=${file##*/}
    name=${name%.md}
    section=${name##*.}
    name=${name%.*}
    markdown "$file" "$name" "$section"
done
file=docs/USING.md name=trireme section=7
markdown $file $name $section

for header in include/trireme/*.h; do
    base=${header##*/}
    base=${base%.h}
    case $base in
    export | comm | trireme) continue ;; # no declarations of their own
    esac
    page=tri_$(noun "$base")
    awk -v page="$page" -v header="$base" -v version="$version" -v folder="$out/man3" \
        -f packaging/man_header.awk "$header"
done
