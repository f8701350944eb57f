#!/bin/sh
# shared_program_test.sh - a test that defines a function of the C library has a program of its own
# (program=own): every other test of a shared one would call that function too. clang's ThreadSanitizer
# is in the program itself and exports functions of its own.
# ctest: tsan=no
set -eu
programs=$(dirname "$TRI_TEST_BIN")/test/programs
looked=0
for list in "$programs"/*.h; do
    program=${list%.h}
    [ "$(wc -l <"$list")" -gt 1 ] && [ "${program##*/}" != threadless ] || continue
    # A function that libraries ask for too is exported, as nothing else of a program is (__: the
    # sanitizers' own).
    taken=$(nm -D --defined-only "$program" | awk '$2 ~ /[TW]/ && $3 !~ /^__/ { print $3 }')
    [ -z "$taken" ] || {
        echo "shared_program_test: a test in $program defines" $taken "for all:" \
            "its file has to say /* ctest: program=own */" >&2
        exit 1
    }
    looked=$((looked + 1))
done
[ "$looked" -ge 10 ]
