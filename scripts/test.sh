#!/usr/bin/env bash
# The tests, in two processes side by side: one has Spark's session and all tests that use it, the other has the rest.
# Options are passed on to both. Usage: scripts/test.sh [pytest options]
set -u
cd "$(dirname "$0")/.." || exit
log="$(mktemp)"
# Spark waits more than it computes, so the others take what it leaves
nice .venv/bin/pytest -m "not spark${SLOW:+ and $SLOW}" "$@" >"$log" 2>&1 &
others=$!
trap 'kill "$others" 2>/dev/null; rm -f "$log"' EXIT
echo "Tests with Spark; those without it run beside them, and are shown at the end."
.venv/bin/pytest -m "spark${SLOW:+ and $SLOW}" "$@"
with=$?
echo "Tests without Spark."
wait "$others"
without=$?
cat "$log"
exit $((with > without ? with : without))
