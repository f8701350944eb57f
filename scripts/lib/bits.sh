# bits.sh - the verb `bits`: do two builds train to the same bits? Sourced by ./run, after build.sh.
#
# Hashes differ between processors, so none is kept in the tree: both builds run here, one after the other
# in each environment, and their lines are compared (tests/bits/bits.c says what a line is).

bits_folder=build/bits
# In the first, every placement of the ranks; in the others a few, unless there is --full or --only.
bits_environments="TRI_ISA= TRI_ISA=portable TRI_ISA=avx2 TRI_ISA=avx512 TRI_EAGER=1 TRI_NUM_THREADS=2"

# bits_program WHAT: builds it if need be; bits_found is the program. WHAT is a folder of a build, a
# revision, or nothing: the tree as it is. What was built of a revision stays in build/bits.
bits_program() {
    if [ -z "$1" ]; then
        build_preset release bits || exit 1
        bits_found=$(pwd -P)/build/test/bits
        return
    elif [ -d "$1" ]; then
        bits_found=$(cd "$1" && pwd -P)/test/bits
        [ -x "$bits_found" ] || wrong_usage "bits: the folder $1 has no test/bits; cmake --build $1 -t bits makes it"
        return
    fi
    revision=$(git rev-parse --verify --quiet "$1^{commit}") ||
        wrong_usage "bits: $1 is neither the folder of a build nor a revision"
    git cat-file -e "$revision:tests/bits/bits.c" 2>/dev/null ||
        wrong_usage "bits: the revision $1 has no tests/bits/bits.c: take a later one"
    tree=$bits_folder/$revision
    if [ ! -e "$tree/run" ]; then
        rm -rf "$tree" "$tree.part"
        mkdir -p "$tree.part"
        git archive "$revision" | tar -C "$tree.part" -xf -
        mv "$tree.part" "$tree"
    fi
    (cd "$tree" && build_preset release bits) || exit 1
    bits_found=$(pwd -P)/$tree/build/test/bits
}

# bits_run PROGRAM FILE ENVIRONMENT [ARGS]: adds its lines, each after `ENVIRONMENT: `, to the file. What
# failed (1) says so in its line; there is none of what an older program does not know (2).
bits_run() {
    bits_of=$1 bits_to=$2 bits_in=$3
    shift 3
    { env "$bits_in" "$bits_of" "$@" || [ $? -le 2 ]; } >"$bits_to.part"
    sed "s|^|$bits_in: |" "$bits_to.part" >>"$bits_to"
    rm "$bits_to.part"
}

# bits_compare OLD NEW: says which lines of the two files differ, and in what. 1 if one does, if one of them
# failed, or if the new one lacks one.
bits_compare() {
    awk '
        { name = $0; sub(/: (weights|failed:) .*/, "", name) }
        /: failed: / { print "failed (" (FILENAME == ARGV[1] ? "old" : "new") "): " $0; bad++ }
        FILENAME == ARGV[1] { old[name] = $0; next }
        !(name in old) { print "only in the new one: " name; next }
        {
            n++
            if ($0 != old[name]) {
                parts = ""
                n_old = split(old[name], a, " ")
                n_new = split($0, b, " ")
                for (i = 2; i <= n_new; i++)
                    if (a[i] != b[i]) parts = parts " " b[i - 1]
                print "differs: " name ":" parts
                bad++
            }
            delete old[name]
        }
        END {
            for (name in old) { print "only in the old one: " name; bad++ }
            if (n == 0) { print "there is nothing to compare"; bad++ }
            printf "%d lines of both, %d differ, failed or are missing\n", n, bad
            exit bad > 0
        }' "$1" "$2"
}

run_bits() {
    brief=--brief only= old= new=
    while [ $# -gt 0 ]; do
        case $1 in
        --full) brief= ;;
        --only)
            [ $# -ge 2 ] || wrong_usage "bits: --only needs a text"
            only=$2 brief=
            shift
            ;;
        -*) wrong_usage "bits: unknown option $1" ;;
        *)
            [ -z "$new" ] || wrong_usage "bits: $1 is a third build"
            if [ -z "$old" ]; then old=$1; else new=$1; fi
            ;;
        esac
        shift
    done
    [ -n "$old" ] || wrong_usage "bits: which build or revision is the old one?"
    need_packages $packages_build
    mkdir -p "$bits_folder"
    bits_program "$old"
    bits_old=$bits_found
    bits_program "$new"
    bits_new=$bits_found
    rm -f "$bits_folder"/old.txt "$bits_folder"/new.txt
    few=
    for environment in $bits_environments; do
        say "training: $environment"
        bits_run "$bits_old" "$bits_folder/old.txt" "$environment" $few "$only"
        bits_run "$bits_new" "$bits_folder/new.txt" "$environment" $few "$only"
        few=$brief
    done
    say "old: $bits_old; new: $bits_new ($bits_folder/old.txt, new.txt)"
    bits_compare "$bits_folder/old.txt" "$bits_folder/new.txt"
}
