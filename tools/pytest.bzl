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

def peers_pytest_test(name, srcs, data = [], tags = [], **kwargs):
    """A test that runs pytest on srcs in @peers_env; "manual", as building it fetches that."""
    native.sh_test(
        name = name,
        srcs = ["//tools:run_python.sh"],
        args = ["$(location @peers_env//:python)", "$(location //tools:pytest_main.py)"] +
               ["$(location %s)" % src for src in srcs],
        data = srcs + data + ["//tools:pytest_main.py", "@peers_env//:python"],
        tags = tags + ["manual"],
        **kwargs
    )
