#!/bin/sh
# by_hand_test.sh - a case runs without what ctest says in the environment, in any folder, as
# CONTRIBUTING.md and the line after a failure say.
set -eu
test=$(dirname "$TRI_TEST_BIN")/test/sampler_test
unset TRI_TEST_BIN TRI_TEST_SOURCE
cd /
"$test" random_and_weighted_ones_are_those_of_torch
