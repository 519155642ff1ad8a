"""What is built where there is a CUDA toolkit, and what with --config=cuda."""

load("@cuda//:defs.bzl", "NVCC")

def cuda_cc_library(name, **kwargs):
    """A cc_library that needs CUDA's headers and libraries; nothing without a CUDA toolkit."""
    if NVCC:
        native.cc_library(name = name, **kwargs)

# A target that there is not: Bazel's message names it.
_NO_TOOLKIT = "//tools:config_cuda_needs_a_CUDA_toolkit_in_CUDA_HOME_or_usr_local_cuda"

def with_cuda(cuda, otherwise = []):
    """One list with --config=cuda, another without."""
    return select({
        "//tools:cuda": cuda if NVCC else [_NO_TOOLKIT],
        "//conditions:default": otherwise,
    })
