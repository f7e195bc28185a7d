#!/usr/bin/env bash
# Runs every test of the modules that are given as arguments, with the race detector. Seeds follow from the commit, so
# that a second run plays the same schedules; FAIRLEAD_SEED_BASE=text replaces the commit.
set -euo pipefail
cd "$(dirname "$0")/.."

base=${FAIRLEAD_SEED_BASE:-$(git rev-parse HEAD 2>/dev/null || echo none)}
sum=$(cksum <<<"$base")
# The race detector makes a play several times slower, so a property is checked with fewer of them than in make test.
export FAIRLEAD_SEED_BASE=$base RAPID_SEED=${sum%% *} RAPID_CHECKS=${RAPID_CHECKS:-40}
echo "==> seeds follow from FAIRLEAD_SEED_BASE=$base"
exec "${TESTALL:?}" ${TABLE:+-table "$TABLE"} "$@"
