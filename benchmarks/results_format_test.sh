#!/usr/bin/env bash
# The committed page must be what the program prints.
benchmarks/results_format | diff docs/results-format.md - && exit
echo "run: bazel run //benchmarks:results_format > docs/results-format.md" >&2
exit 1
