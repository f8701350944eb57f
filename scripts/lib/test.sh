# test.sh - the verb `test`. Sourced by ./run.
#
# Every test is a ctest entry; what counts is read from ctest's JUnit file, because neither its
# exit status nor its last line tells "all passed" from "there was nothing to run". A preset that
# does not build is one failure of its own.

# Many tests wait most of their time, for deadlines and for each other's processes.
tests_at_once=$((jobs * 2))
total_passed=0
total_failed=0
failed_names=

count_failure() {
    total_failed=$((total_failed + 1))
    failed_names="$failed_names $1"
}

# build_ahead PRESET...: builds them while tests run, which leave the processor idle now and then.
# Whoever needs one waits for all, and builds again what did not succeed, to see why. Ctrl-C ends
# ninja alone: a shell in the background does not hear it.
building_ahead=
build_ahead() {
    (
        build_nice="nice -n 19"
        for ahead; do build_preset "$ahead" || exit; done
    ) >/dev/null 2>&1 </dev/null &
    building_ahead=$!
}

# Of ctest's output: a line now and then about what passed, everything about what did not.
progress_filter() {
    awk -v preset="$1" '
        /^ *Start +[0-9]+: / { next }
        /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: .* Passed +[0-9.]+ sec/ {
            split($1, at, "/")
            if (at[1] - shown >= 50) { print "    " preset ": " at[1] " of " at[2]; shown = at[1]; fflush() }
            next
        }
        /^Test project|^Label Time|^[a-z_]+ += .*sec\*proc|^ *$|Errors while running CTest/ { next }
        { print; fflush() }'
}

# add_junit FILE: adds its cases to the totals. A case that did not run (program missing,
# disabled, skipped) did not pass.
add_junit() {
    counts=$(awk '
        /<testcase / {
            cases++
            if ($0 ~ /status="run"/) { passed++ } else {
                name = $0
                sub(/.*<testcase name="/, "", name)
                sub(/".*/, "", name)
                names = names " " name
            }
        }
        END { print passed + 0, cases - passed, names }' "$1" 2>/dev/null || echo "0 0")
    set -- $counts
    passed=$1 failed=$2
    shift 2
    failed_of_run=$*
}

# test_preset NAME CTEST_ARGS...: build it and run its tests.
test_preset() {
    preset=$1
    shift
    started=$(date +%s)
    if [ -n "$building_ahead" ]; then
        wait "$building_ahead" || :
        building_ahead=
    fi
    if ! build_preset "$preset"; then
        count_failure "build:$preset"
        return
    fi
    [ -z "$build_next" ] || build_ahead $build_next
    build_next=
    folder=$(preset_folder "$preset")
    junit=$(pwd -P)/$folder/junit.xml
    rm -f "$junit"
    say "testing $preset"
    ctest --preset "$preset" -j "$tests_at_once" --output-junit "$junit" "$@" 2>&1 </dev/null |
        tee "$folder/test.log" | progress_filter "$preset"
    add_junit "$junit"
    if [ $((passed + failed)) -eq 0 ]; then
        echo "run: ctest ran no test of the preset $preset ($folder/test.log)" >&2
        count_failure "no-tests:$preset"
        return
    fi
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    for name in $failed_of_run; do
        failed_names="$failed_names $preset:$name"
    done
    say "$preset: $passed passed, $failed failed, $(($(date +%s) - started)) s"
}

# test_peers: the scripts of tests/peers compare us with PyTorch; each is one test, lib* is shared.
test_peers() {
    . scripts/lib/peers.sh
    build_preset release || {
        count_failure build:release
        return
    }
    find_peer_python || {
        count_failure peers:pytorch
        return
    }
    found=
    for script in tests/peers/*.py tests/peers/*.sh; do
        [ -f "$script" ] || continue
        case ${script##*/} in lib*) continue ;; esac
        found=1
        say "peers: $script"
        case $script in
        *.py) set -- "$TRI_PEER_PYTHON" "$script" ;;
        *) set -- sh "$script" ;;
        esac
        if TRI_TEST_BIN=$(pwd -P)/build/bin TRI_TEST_SOURCE=$(pwd -P) "$@" </dev/null; then
            total_passed=$((total_passed + 1))
        else
            count_failure "peers:${script##*/}"
        fi
    done
    [ -n "$found" ] || count_failure "no-tests:peers"
}

run_test() {
    mode=all peers= build_next=
    while [ $# -gt 0 ]; do
        case $1 in
        --quick) mode=quick ;;
        --peers) peers=1 ;;
        --preset)
            [ $# -ge 2 ] || wrong_usage "test: --preset needs a name"
            mode=preset-$2
            case $2 in
            release | dev | asan | tsan) ;;
            *) wrong_usage "test: unknown preset $2" ;;
            esac
            shift
            ;;
        *) wrong_usage "test: unknown option $1" ;;
        esac
        shift
    done
    need_packages $packages_build $packages_data $packages_test $packages_plugins

    case $mode in
    quick) test_preset dev -L quick ;;
    preset-*) test_preset "${mode#preset-}" ;;
    all)
        # Everything once, as users get it; then what is quick, with assertions: asan by the first
        # compiler, tsan by the second.
        build_next="asan tsan"
        test_preset release
        test_preset asan -L quick -LE tree
        test_preset tsan -L quick -LE tree
        ;;
    esac
    [ -z "$peers" ] || test_peers

    [ -z "$failed_names" ] || echo "failed:$failed_names"
    echo "$total_passed passed, $total_failed failed"
    [ "$total_failed" -eq 0 ] || exit 1
}
