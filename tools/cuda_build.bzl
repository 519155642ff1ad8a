"""What is built where there is a CUDA toolkit, and what with --config=cuda."""

load("@cuda//:defs.bzl", "NVCC")

def cuda_cc_library(name, **kwargs):
    """A cc_library that needs CUDA's headers and libraries; nothing without a CUDA toolkit."""
    if NVCC:
        native.cc_library(name = name, **kwargs)

def with_cuda(cuda, otherwise = []):
    """One list with --config=cuda, another without."""
    return select({
        "//tools:cuda": cuda,
        "//conditions:default": otherwise,
    })
