"""Prints how many test targets passed and failed, from a file of Bazel's build events.

A test that could not be built counts as failed. Usage: count_tests.py EVENTS_JSON
"""

import json
import pathlib
import sys


def outcomes(lines):
    """Whether each test target passed, by label."""
    passed = {}
    for event in map(json.loads, lines):
        identity = event["id"]
        if event.get("configured", {}).get("testSize"):
            passed.setdefault(identity["targetConfigured"]["label"], False)
        if "testSummary" in event:
            status = event["testSummary"]["overallStatus"]
            passed[identity["testSummary"]["label"]] = status in ("PASSED", "FLAKY")
    return passed


def main():
    path = pathlib.Path(sys.argv[1])
    passed = outcomes(path.read_text().splitlines()) if path.exists() else {}
    good = sum(passed.values())
    print(good, len(passed) - good)


if __name__ == "__main__":
    main()
