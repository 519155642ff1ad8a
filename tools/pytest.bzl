"""Tests written for pytest."""

def pytest_test(name, srcs, args = [], **kwargs):
    """A py_test that runs pytest on srcs; --test_filter is pytest's -k."""
    main = "//tools:pytest_main.py"
    native.py_test(
        name = name,
        srcs = srcs + [main],
        main = main,
        args = ["$(location %s)" % src for src in srcs] + args,
        **kwargs
    )
