"""A virtual environment made from hash-locked requirements files."""

def _run(ctx, args):
    result = ctx.execute(args, timeout = 3600, quiet = False)
    if result.return_code:
        fail("%s failed:\n%s%s" % (args, result.stdout, result.stderr))

def _python_env_impl(ctx):
    locks = [ctx.path(lock) for lock in ctx.attr.requirements]
    python3 = ctx.which("python3")
    if not python3:
        fail("@%s: python3 is missing: run ./bazelw once, or install python3-venv." % ctx.name)

    # Named after the locks, so that whatever ran under older ones runs again.
    venv = ctx.path("venv%d" % hash("".join([ctx.read(lock) for lock in locks])))
    python = venv.get_child("bin").get_child("python3")
    _run(ctx, [python3, "-m", "venv", venv])
    install = [python, "-m", "pip", "install", "-q", "--no-compile", "--no-deps", "--require-hashes"]
    for lock in locks:
        install += ["-r", lock]
    _run(ctx, install)
    ctx.symlink(
        venv.get_child("lib").readdir()[0].get_child("site-packages"),
        "site-packages",
    )
    ctx.file("BUILD.bazel", """\
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

filegroup(
    name = "clang_format",
    srcs = ["site-packages/clang_format/data/bin/clang-format"],
    visibility = ["//visibility:public"],
)

py_runtime(
    name = "runtime",
    interpreter_path = "{python}",
    python_version = "PY3",
    stub_shebang = "#!{python}",
)

py_runtime_pair(
    name = "runtime_pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtime_pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
""".format(python = python))

python_env = repository_rule(
    _python_env_impl,
    attrs = {"requirements": attr.label_list(mandatory = True, allow_files = True)},
)
