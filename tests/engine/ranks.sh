#!/bin/bash
# Runs tests of the engine with models that several ranks compute together: no schedule, batch or adapter may change an
# answer there either.
set -eu
BUILD=${BUILD:-build}
UM_TEST_RANKS=2 "$BUILD/tests/engine/schedule_test"
UM_TEST_RANKS=4 "$BUILD/tests/engine/whole_invariance_test"
UM_TEST_RANKS=2 "$BUILD/tests/engine/adapters_test"
