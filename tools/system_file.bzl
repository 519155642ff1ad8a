"""A data file that a Debian package installs, pinned by its content."""

def _system_file_impl(ctx):
    path = ctx.path(ctx.attr.path)
    if not path.exists:
        fail("@%s: %s is missing: run ./bazelw once, or install %s." % (
            ctx.name,
            path,
            ctx.attr.package,
        ))
    ctx.download("file://%s" % path, output = path.basename, sha256 = ctx.attr.sha256)
    ctx.file("BUILD.bazel", "exports_files([%r])\n" % path.basename)

system_file = repository_rule(
    _system_file_impl,
    attrs = {
        "package": attr.string(mandatory = True, doc = "The Debian package, named in errors."),
        "path": attr.string(mandatory = True),
        "sha256": attr.string(mandatory = True),
    },
)
