"""Runs pytest on the files named on the command line, as a Bazel test."""

import os
import sys

import pytest

if __name__ == "__main__":
    options = ["-p", "no:cacheprovider"]
    if "XML_OUTPUT_FILE" in os.environ:
        options.append("--junitxml=" + os.environ["XML_OUTPUT_FILE"])
    if "TESTBRIDGE_TEST_ONLY" in os.environ:
        options += ["-k", os.environ["TESTBRIDGE_TEST_ONLY"]]
    sys.exit(pytest.main(options + sys.argv[1:]))
