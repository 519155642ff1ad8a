"""Virtual environments made from hash-locked requirements files."""

def _run(ctx, args):
    result = ctx.execute(args, timeout = 3600, quiet = False)
    if result.return_code:
        fail("%s failed:\n%s%s" % (args, result.stdout, result.stderr))

def _python_env_impl(ctx):
    locks = [ctx.path(lock) for lock in ctx.attr.requirements]
    sources = [ctx.path(lock) for lock in ctx.attr.source_requirements]
    python3 = ctx.which("python3")
    if not python3:
        fail("@%s: python3 is missing: run ./bazelw once, or install python3-venv." % ctx.name)

    # Named after the locks, so that whatever ran under older ones runs again.
    venv = ctx.path("venv%d" % hash("".join([ctx.read(lock) for lock in locks + sources])))
    python = venv.get_child("bin").get_child("python3")
    _run(ctx, [python3, "-m", "venv", venv])
    install = [python, "-m", "pip", "install", "-q", "--no-compile", "--no-deps", "--require-hashes"]
    wheels = list(install)
    for lock in locks:
        wheels += ["-r", lock]
    _run(ctx, wheels)
    site_packages = venv.get_child("lib").readdir()[0].get_child("site-packages")
    if ctx.attr.base:
        base = ctx.path(ctx.attr.base).dirname.get_child("site-packages")
        ctx.file(site_packages.get_child("base.pth"), "%s\n" % base.realpath)
    for lock in sources:
        # No compiler: what an optional extension would be built with.
        _run(
            ctx,
            ["env", "CXX=false"] + install + ["--no-build-isolation", "-r", lock],
        )
    ctx.symlink(site_packages, "site-packages")
    ctx.file("python", "#!/bin/sh\nexec '%s' \"$@\"\n" % python, executable = True)
    ctx.file("BUILD.bazel", """\
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

# Starts the environment's interpreter, for programs that run scripts in it.
exports_files(["python"])

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
    attrs = {
        "base": attr.label(
            doc = "The BUILD file of a python_env whose packages this one has too, unless it has " +
                  "its own.",
        ),
        "requirements": attr.label_list(mandatory = True, allow_files = True),
        "source_requirements": attr.label_list(
            allow_files = True,
            doc = "Locks of packages that there are only as sources: built with what the " +
                  "others installed, and without extensions in C++.",
        ),
    },
)
