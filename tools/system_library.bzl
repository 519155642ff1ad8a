"""C++ libraries that the system provides, each at the one version that is pinned for it."""

_INCLUDE = "/usr/include"

def _found_version(ctx):
    """The upstream version of the installed library, or "" where nothing tells."""
    if ctx.attr.version_after:
        header = ctx.read("%s/%s" % (_INCLUDE, ctx.attr.version_header))
        return header.partition(ctx.attr.version_after)[2].partition("\n")[0].rstrip('"')
    dpkg_query = ctx.which("dpkg-query")
    if not dpkg_query:
        return ""
    found = ctx.execute([dpkg_query, "-W", "-f=${source:Upstream-Version}", ctx.attr.package])
    return found.stdout.strip().partition("+")[0]

def _system_library_impl(ctx):
    headers = [
        entry
        for entry in ctx.path(_INCLUDE).readdir()
        if entry.basename.startswith(ctx.attr.headers)
    ]
    if not headers:
        fail("@%s: %s/%s is missing: run ./bazelw once, or install %s." % (
            ctx.name,
            _INCLUDE,
            ctx.attr.headers,
            ctx.attr.package,
        ))
    version = _found_version(ctx)
    if version and version != ctx.attr.version:
        fail(("@%s: version %s is pinned, but %s is installed: install %s %s, or pin the other " +
              "version in tools/workspace.bzl and run the tests.") % (
            ctx.name,
            ctx.attr.version,
            version,
            ctx.attr.package,
            ctx.attr.version,
        ))
    for header in headers:
        ctx.symlink(header, "include/" + header.basename)
    ctx.file("BUILD.bazel", "".join(["""\
cc_library(
    name = "{name}",
    hdrs = glob(["include/**"]),
    includes = ["include"],
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
""".format(name = name, linkopts = linkopts) for name, linkopts in ctx.attr.targets.items()]))

system_library = repository_rule(
    _system_library_impl,
    attrs = {
        "headers": attr.string(
            mandatory = True,
            doc = "What the library's entries of /usr/include begin with.",
        ),
        "package": attr.string(mandatory = True, doc = "The Debian package, also named in errors."),
        "targets": attr.string_list_dict(mandatory = True, doc = "Name to linker options."),
        "version": attr.string(mandatory = True, doc = "The upstream version."),
        "version_after": attr.string(
            doc = "Text in version_header right before the version; without it dpkg is asked.",
        ),
        "version_header": attr.string(),
    },
    local = True,
)
