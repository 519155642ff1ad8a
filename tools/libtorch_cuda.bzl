"""The CUDA half of the torch wheel, with the wheels that it needs beside a CUDA toolkit."""

def _libtorch_cuda_impl(ctx):
    torch = ctx.path(ctx.attr.python_env).dirname.get_child("site-packages").get_child("torch")
    wheels = ctx.path(ctx.attr.wheels).dirname.get_child("site-packages").get_child("nvidia")
    ctx.symlink(torch.get_child("lib"), "torch")
    ctx.symlink(wheels, "nvidia")
    ctx.symlink(ctx.attr._build_file, "BUILD.bazel")

libtorch_cuda = repository_rule(
    _libtorch_cuda_impl,
    attrs = {
        "python_env": attr.label(mandatory = True),
        "wheels": attr.label(mandatory = True, doc = "The BUILD file of their python_env."),
        "_build_file": attr.label(default = "//tools:libtorch_cuda.BUILD"),
    },
)
