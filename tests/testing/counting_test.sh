#!/bin/sh
# counting_test.sh - `./run test` counts cases, and one that did not run has not passed.
# ctest: tsan=no
set -eu
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-counting.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tools" "$work/build/dev/test"
cd "$work"

fail() {
    echo "counting_test: $*" >&2
    exit 1
}

printf '%s\n' 'a_test one' 'a_test two' 'b_test.TRI_X=1 one' 'c_test one' 'd_test one' 'not_chosen_test one' \
    >build/dev/test/cases.txt
# Instead of ctest: a_test passes; of b_test nothing is there; c_test fails in one case; d_test fails after
# its last case; a script passes, another fails.
cat >tools/ctest <<'END'
#!/bin/sh
junit= list=
for argument; do
    case $argument in
    -N) list=1 ;;
    *junit.xml) junit=$argument ;;
    esac
done
if [ -n "$list" ]; then
    printf '  Test #1: %s\n' a_test b_test.TRI_X=1 c_test d_test script_test check_x
    exit
fi
cd build/dev/test/results
printf 'passed one 0.10\npassed two 0.20\n' >a_test
echo 'failed one 0.30' >c_test
echo 'passed one 0.30' >d_test
printf '        Start 1: a_test\n%s' '1/6 Test #1: a_test ........   Passed    0.30 sec
2/6 Test #2: b_test.TRI_X=1 ...***Not Run   0.00 sec
3/6 Test #3: c_test ...........***Failed    0.30 sec
what c_test printed
4/6 Test #4: d_test ...........***Failed    0.30 sec
5/6 Test #5: script_test ......   Passed    1.00 sec
6/6 Test #6: check_x ..........***Failed    1.00 sec
100% tests passed, 0 tests failed out of 6
'
printf '<testcase name="%s" status="run">\n' a_test script_test >"$junit"
exit 8
END
chmod +x tools/ctest
PATH=$work/tools:$PATH

jobs=2
for part in progress build test; do . "$TRI_TEST_SOURCE/scripts/lib/$part.sh"; done
build_preset() { :; }
build_next=
test_preset dev >said
[ "$total_passed $total_failed" = "4 4" ] || fail "$total_passed passed and $total_failed failed instead of 4 and 4"
[ "$failed_names" = " dev:b_test.TRI_X=1.one dev:c_test.one dev:check_x dev:d_test" ] ||
    fail "these have failed: $failed_names"
grep -q 'what c_test printed' said || fail "what a failed test prints is not shown: $(cat said)"
! grep -q 'Passed\|Start' said || fail "what passes is told one by one: $(cat said)"
grep -qx 'a_test two 0.20' build/dev/test/seconds.txt || fail "no times for the next run"

# A command that fails has failed, whatever reads its output.
if logged log follow_build sh -c 'echo "[1/2] one"; exit 3' >said; then fail "a build that failed passes"; fi
[ "$(cat log)" = "[1/2] one" ] || fail "its output is not in its log"
[ "$(clock 59) $(clock 61) $(clock 3600)" = "0:59 1:01 1:00:00" ] || fail "clock"
