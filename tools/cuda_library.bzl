"""Rules for CUDA C++ that vanish where there is no CUDA toolkit."""

load("@cuda//:defs.bzl", "NVCC")

_FLAGS = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90a,code=sm_90a",
    # For later devices, which compile it when a program starts.
    "-gencode=arch=compute_90,code=compute_90",
    "-std=c++17",
    "-O2",
    "-Werror=all-warnings",
    "-Xptxas=-v",
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror",
]

def _cuda_objects_impl(ctx):
    cc = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    objects = []
    reports = []
    for src in ctx.files.srcs:
        obj = ctx.actions.declare_file("_objs/%s/%s.pic.o" % (ctx.label.name, src.basename))
        report = ctx.actions.declare_file("_objs/%s/%s.ptxas" % (ctx.label.name, src.basename))
        args = ctx.actions.args()
        args.add_all([report, NVCC])
        args.add_all(_FLAGS)
        args.add_all(cc.defines, format_each = "-D%s")
        args.add_all(["."] + cc.quote_includes.to_list() + cc.includes.to_list(), format_each = "-I%s")
        args.add_all(cc.system_includes, before_each = "-isystem")
        args.add_all(["-c", src, "-o", obj])
        ctx.actions.run_shell(
            command = 'report=$1; shift; "$@" 2> "$report" || { cat "$report" >&2; exit 1; }',
            arguments = [args],
            inputs = depset([src] + ctx.files.hdrs, transitive = [cc.headers]),
            outputs = [obj, report],
            mnemonic = "CudaCompile",
            use_default_shell_env = True,
        )
        objects.append(obj)
        reports.append(report)
    return [
        DefaultInfo(files = depset(objects)),
        OutputGroupInfo(ptxas = depset(reports)),
    ]

_cuda_objects = rule(
    _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
    },
)

def cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """A cc_library of .cu files; nothing without a CUDA toolkit.

    NAME_ptxas holds what ptxas reports of each file: registers, spills, shared memory.
    """
    if not NVCC:
        return
    deps = deps + ["@cuda//:cudart"]
    _cuda_objects(name = name + "_objects", srcs = srcs, hdrs = hdrs, deps = deps)
    native.filegroup(
        name = name + "_ptxas",
        srcs = [name + "_objects"],
        output_group = "ptxas",
    )
    native.cc_library(name = name, srcs = [name + "_objects"], hdrs = hdrs, deps = deps, **kwargs)

def cuda_test(name, **kwargs):
    """A cc_test that needs CUDA; nothing without a CUDA toolkit."""
    if NVCC:
        native.cc_test(name = name, **kwargs)
