# test.sh - the verb `test`. Sourced by ./run.
#
# A ctest entry is a file of cases, a script or a check. What counts is each case: test/cases.txt of the
# build folder lists those of every file, and a file leaves what became of them in test/results/. Neither
# ctest's exit status nor its last line tells "all passed" from "there was nothing to run". A preset
# that does not build is one failure of its own.

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
# A test that needs one waits for all, and builds again what did not succeed, to see why. Ctrl-C ends
# ninja alone: a shell in the background does not hear it.
building_ahead=
build_ahead() {
    (
        build_nice="nice -n 19"
        for ahead; do build_preset "$ahead" || exit; done
    ) >/dev/null 2>&1 </dev/null &
    building_ahead=$!
}

# list_cases CTEST_ARGS...: `ENTRY CASE SECONDS` of every case that ctest is going to run; seconds: what it
# took last time, else 1. The case of a script or a check is `-`.
list_cases() {
    touch "$folder/test/seconds.txt"
    ctest --preset "$preset" -N "$@" | awk '
        FILENAME == ARGV[1] { seconds[$1 " " $2] = $3; next }
        FILENAME == ARGV[2] { cases[$1] = cases[$1] " " $2; next }
        /^ *Test +#[0-9]+: / {
            n = split($NF in cases ? cases[$NF] : "-", name, " ")
            for (i = 1; i <= n; i++)
                print $NF, name[i], $NF " " name[i] in seconds ? seconds[$NF " " name[i]] : 1
        }' "$folder/test/seconds.txt" "$folder/test/cases.txt" -
}

# results: `ENTRY passed|failed CASE SECONDS [PROCESSOR SECONDS]` of those that have run.
results() {
    find "$folder/test/results" -type f -exec awk '{
        entry = FILENAME
        sub(/.*\//, "", entry)
        print entry, $0
    }' {} +
}

# tell_progress: how far it is, by the time that cases took.
tell_progress() {
    progress "$(results | awk -v preset="$preset" '
        FILENAME == ARGV[1] { all++; seconds[$1 " " $2] = $3; weight += $3; next }
        $2 == "failed" { failed++ }
        { n++; done += seconds[$1 " " $3] }
        END {
            printf "%s: %d of %d", preset, n, all
            if (failed) printf ", %d failed", failed
            print "|" int(1000 * done), int(1000 * weight)
        }' "$folder/test/cases_now.txt" - | {
        IFS='|' read -r told weights
        echo "$told, $(clock $progress_seconds)$(progress_left $weights)"
    })"
}

# follow_tests: of ctest's output everything about what did not pass; of the rest only how far it is.
follow_tests() {
    progress_begin
    # Ctrl-C does not reach what runs in the background: it looks whether the shell is still there.
    while sleep $((progress_redraws ? 2 : 20)) >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        progress_tick
        tell_progress
    done &
    ticker=$!
    while IFS= read -r line; do
        case $line in
        *' Test '*'#'*': '*' sec'*)
            note_entry "$line"
            case $line in *' Passed '*) continue ;; esac
            ;;
        *' Start '*': '* | 'Test project'* | 'Label Time'* | *' sec*proc '* | '' | Preset* | ' '*'="'* | \
            *'% tests passed'* | 'Total Test time'* | *'Errors while running CTest'*) continue ;;
        esac
        progress_clear
        printf '%s\n' "$line"
    done
    kill $ticker
    wait $ticker 2>/dev/null || :
    progress_clear
}

# note_entry LINE: the result of a script or a check, beside those of cases.
note_entry() {
    entry=${1#*'#'}
    entry=${entry#*: }
    entry=${entry%% *}
    [ ! -e "$folder/test/results/$entry" ] || return 0
    seconds=${1% sec*}
    seconds=${seconds##* }
    case $1 in
    *' Passed '*) echo "passed - $seconds" >"$folder/test/results/$entry" ;;
    *) echo "failed - $seconds" >"$folder/test/results/$entry" ;;
    esac
}

# count_results: adds what ran to the totals. A case that did not run did not pass: it is in the list, and
# has no result. An entry that failed although all of its cases passed is one failure more.
count_results() {
    counts=$(results | awk '
        FILENAME == ARGV[1] {
            if ($0 ~ /<testcase /) {
                name = $0
                sub(/.*<testcase name="/, "", name)
                sub(/".*/, "", name)
                if ($0 ~ /status="run"/) entry_passed[name] = 1
            }
            next
        }
        FILENAME == ARGV[2] { order[++n] = $1 " " $2; next }
        { result[$1 " " $3] = $2 }
        END {
            for (i = 1; i <= n; i++) {
                split(order[i], part, " ")
                entry = part[1]
                if (result[order[i]] == "passed") passed++
                else {
                    names = names " " entry (part[2] == "-" ? "" : "." part[2])
                    failed++
                    failed_of[entry]++
                }
                if (!(entry in seen)) { seen[entry] = 1; entries[++n_entries] = entry }
            }
            for (i = 1; i <= n_entries; i++)
                if (!(entries[i] in entry_passed) && !failed_of[entries[i]]) {
                    failed++
                    names = names " " entries[i]
                }
            print passed + 0, failed + 0, names
        }' "$junit" "$folder/test/cases_now.txt" - 2>/dev/null || echo "0 0")
    set -- $counts
    passed=$1 failed=$2
    shift 2
    failed_of_run=$*
}

# test_preset NAME CTEST_ARGS...: build it and run its tests.
test_preset() {
    test_of=$1
    shift
    started=$(date +%s)
    if [ -n "$building_ahead" ]; then
        say "waiting for the builds that began beside the tests (build/*/build.log)"
        wait "$building_ahead" || :
        building_ahead=
    fi
    if ! build_preset "$test_of"; then
        count_failure "build:$test_of"
        return
    fi
    [ -z "$build_next" ] || build_ahead $build_next
    build_next=
    preset=$test_of
    folder=$(preset_folder "$preset")
    junit=$(pwd -P)/$folder/junit.xml
    rm -rf "$junit" "$folder/test/results"
    mkdir -p "$folder/test/results"
    list_cases "$@" >"$folder/test/cases_now.txt"
    if [ ! -s "$folder/test/cases_now.txt" ]; then
        echo "run: ctest has no test of the preset $preset" >&2
        count_failure "no-tests:$preset"
        return
    fi
    say "testing $preset ($folder/test.log)"
    : >"$junit"
    logged "$folder/test.log" follow_tests \
        ctest --preset "$preset" -j "$tests_at_once" --output-junit "$junit" "$@" || :
    count_results
    results | awk '{ print $1, $3, $4 }' >"$folder/test/seconds.txt"
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    for name in $failed_of_run; do
        failed_names="$failed_names $preset:$name"
    done
    say "$preset: $passed passed, $failed failed in $(clock $(($(date +%s) - started)))"
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
    mode=one peers= build_next=
    while [ $# -gt 0 ]; do
        case $1 in
        --all) mode=all ;;
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
    one) test_preset dev -L quick ;;
    preset-asan | preset-tsan) test_preset "${mode#preset-}" -LE tree ;; # checks are of what users get
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
