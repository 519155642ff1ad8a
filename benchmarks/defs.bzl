"""Links variants of one's own, wherever they live, into programs of the suite."""

def ttbench_sweep(name, variants, deps = [], **kwargs):
    """A sweep program with variants of one's own beside the repository's, and the test of them.

    `bazel run :<name>` is //benchmarks:sweep with them; `bazel test :<name>_test` holds each of them
    to the float64 oracle, forward and gradients, and to its cost model, byte by byte.

    Args:
      name: of the program.
      variants: their .cc files, which register them (docs/adding-a-variant.md).
      deps: what those need beside //kernels:variant and LibTorch.
      **kwargs: of all rules, such as tags and visibility.
    """
    native.cc_library(
        name = name + "_variants",
        srcs = variants,
        alwayslink = True,
        deps = deps + [
            "@ttbench//kernels:variant",
            "@libtorch//:cpu",
        ],
        **kwargs
    )
    native.cc_binary(
        name = name,
        srcs = ["@ttbench//benchmarks:sweep_main.cc"],
        local_defines = ["TTBENCH_SWEEP='\"//%s:%s\"'" % (native.package_name(), name)],
        deps = [
            ":%s_variants" % name,
            "@ttbench//benchmarks:sweep_lib",
            "@ttbench//kernels/attention",
            "@ttbench//kernels/linear",
        ],
        **kwargs
    )
    native.cc_test(
        name = name + "_test",
        size = "small",
        deps = [
            ":%s_variants" % name,
            "@ttbench//benchmarks:memory_model_checks",
            "@ttbench//kernels/linear:dense",
            "@ttbench//kernels/linear:variant_checks",
        ],
        **kwargs
    )
