"""Rules for CUDA C++ that vanish where there is no CUDA toolkit."""

load("@cuda//:defs.bzl", "NVCC")

_FLAGS = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-std=c++17",
    "-O2",
    "-Werror=all-warnings",
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror",
]

def _cuda_objects_impl(ctx):
    cc = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    objects = []
    for src in ctx.files.srcs:
        obj = ctx.actions.declare_file("_objs/%s/%s.pic.o" % (ctx.label.name, src.basename))
        args = ctx.actions.args()
        args.add_all(_FLAGS)
        args.add_all(cc.defines, format_each = "-D%s")
        args.add_all(["."] + cc.quote_includes.to_list() + cc.includes.to_list(), format_each = "-I%s")
        args.add_all(cc.system_includes, before_each = "-isystem")
        args.add_all(["-c", src, "-o", obj])
        ctx.actions.run(
            executable = NVCC,
            arguments = [args],
            inputs = depset([src] + ctx.files.hdrs, transitive = [cc.headers]),
            outputs = [obj],
            mnemonic = "CudaCompile",
            use_default_shell_env = True,
        )
        objects.append(obj)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects = rule(
    _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
    },
)

def cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """A cc_library of .cu files; nothing without a CUDA toolkit."""
    if not NVCC:
        return
    deps = deps + ["@cuda//:cudart"]
    _cuda_objects(name = name + "_objects", srcs = srcs, hdrs = hdrs, deps = deps)
    native.cc_library(name = name, srcs = [name + "_objects"], hdrs = hdrs, deps = deps, **kwargs)

def cuda_test(name, **kwargs):
    """A cc_test that needs CUDA; nothing without a CUDA toolkit."""
    if NVCC:
        native.cc_test(name = name, **kwargs)
