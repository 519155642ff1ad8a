"""Files of a hash-locked wheel, without installing the wheel or what it depends on."""

def _wheel_files_impl(ctx):
    # pip comes from the Python environment: the system's Python need not have one.
    site_packages = ctx.path(ctx.attr.python_env).dirname.get_child("site-packages").realpath
    python = site_packages.dirname.dirname.dirname.get_child("bin").get_child("python3")
    lock = ctx.path(ctx.attr.requirements)
    pip = ["-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    extract = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(members = sys.argv[2:])"
    _run(ctx, [python] + pip + ["-d", "wheels", "-r", lock])
    _run(ctx, [python, "-c", extract, ctx.path("wheels").readdir()[0]] + ctx.attr.files)
    ctx.delete("wheels")
    ctx.file("BUILD.bazel", "exports_files(%r)\n" % ctx.attr.files)

def _run(ctx, args):
    result = ctx.execute(args, timeout = 600)
    if result.return_code:
        fail("@%s: %s failed:\n%s%s" % (ctx.name, args, result.stdout, result.stderr))

wheel_files = repository_rule(
    _wheel_files_impl,
    attrs = {
        "files": attr.string_list(mandatory = True, doc = "Their paths in the wheel."),
        "python_env": attr.label(mandatory = True),
        "requirements": attr.label(
            mandatory = True,
            allow_single_file = True,
            doc = "The lock file, of this one wheel.",
        ),
    },
)
