"""The C++ half of the torch wheel installed in a python_env."""

def _libtorch_impl(ctx):
    site_packages = ctx.path(ctx.attr.python_env).dirname.get_child("site-packages")
    for name in ["torch", "nvidia"]:
        ctx.symlink(site_packages.get_child(name), name)
    ctx.symlink("torch/include/fmt", "fmt/include/fmt")
    ctx.symlink(ctx.attr._build_file, "BUILD.bazel")

libtorch = repository_rule(
    _libtorch_impl,
    attrs = {
        "python_env": attr.label(mandatory = True),
        "_build_file": attr.label(default = "//tools:libtorch.BUILD"),
    },
)
