import os
import pathlib
import re
import shutil
import subprocess

import pytest

from kernels import new_variant

_SWEEP = pathlib.Path("benchmarks/sweep").absolute()
_CLANG_FORMAT = pathlib.Path(os.environ["CLANG_FORMAT"]).absolute()


@pytest.fixture
def repository(tmp_path):
    """A workspace with the sources of the repository's variants."""
    workspace = tmp_path / "repository"
    for folder in ("kernels", "kernels/linear"):
        (workspace / folder).mkdir(parents=True)
        for path in pathlib.Path(folder).iterdir():
            if path.suffix in (".cc", ".h") or path.name == "BUILD":
                shutil.copy(path, workspace / folder / path.name)
    (workspace / "WORKSPACE").write_text('workspace(name = "ttbench")\n')
    return workspace


@pytest.fixture
def run(repository, monkeypatch, capsys):
    """Runs the program as `bazel run` does; returns its exit code, output and complaint."""
    def call(*arguments, stands=repository):
        monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(repository))
        monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(stands))
        code = new_variant.main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err
    return call


def _files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_writes_the_file_and_its_line(run, repository):
    before = _files(repository)
    code, out, err = run("--name=my-variant")
    assert (code, err) == (0, "")
    changed = {path for path, text in _files(repository).items() if before.get(path) != text}
    source, build = repository / "kernels/linear/my_variant.cc", repository / "kernels/linear/BUILD"
    assert changed == {source, build}
    old, new = before[build].decode().splitlines(), build.read_text().splitlines()
    assert [line for line in new if line not in old] == ['    "my_variant",']
    assert new_variant.names_in(source.read_text()) == ["my-variant"]
    # The list stays sorted.
    entries = re.search(r"VARIANTS = \[\n(.*?)\]", build.read_text(), re.DOTALL)[1].splitlines()
    assert entries == sorted(entries)
    for command in ("//kernels/linear:variants_test --test_filter='*/my_variant'",
                    "//benchmarks:memory_model_test --test_filter='*/my_variant'",
                    "//benchmarks:sweep -- --variant='dense*,my-variant'"):
        assert command in out


@pytest.mark.parametrize("name", ["a", "my-variant", "x2-3", "n" * 24, "n" * 25,
                                  "a-variant-with-a-name-of-more-than-most-words"])
def test_what_it_writes_is_formatted(tmp_path, name):
    source = tmp_path / "skeleton.cc"
    source.write_text(new_variant.skeleton(name))
    shutil.copy(".clang-format", tmp_path)
    formatted = subprocess.run([_CLANG_FORMAT, source], capture_output=True, text=True, check=True)
    assert formatted.stdout == source.read_text()


def test_every_registered_name_is_known_to_be_taken(run, repository):
    plan = subprocess.run([_SWEEP, "--d=2", "--list"], capture_output=True, text=True, check=True)
    names = set(re.findall(r"linear/([^/]+)/", plan.stdout))
    assert {"dense", "auto", "einsum-cores-first", "projected", "sequential-l2r"} <= names
    before = _files(repository)
    for name in names:
        code, out, err = run(f"--name={name}")
        assert (code, out) == (2, "")
        assert f"a variant named '{name}' is in " in err and "choose another name" in err
    assert _files(repository) == before


@pytest.mark.parametrize("name", ["join-cores", "kernel-call", "linear", "fused-test"])
def test_a_taken_file_or_target_is_refused(run, repository, name):
    before = _files(repository)
    code, _, err = run(f"--name={name}")
    assert code == 2
    assert "choose another name" in err
    assert _files(repository) == before


@pytest.mark.parametrize("name", ["My-Variant", "my_variant", "2cores", "-a", "a-", "a--b", "a b",
                                  "a/b", ""])
def test_an_ill_formed_name_is_refused(run, repository, name):
    before = _files(repository)
    code, out, err = run(f"--name={name}")
    assert (code, out) == (2, "")
    assert err.startswith("new_variant: --name: ") and "my-variant" in err
    assert len(err.splitlines()) == 1
    assert _files(repository) == before


def test_a_build_file_without_the_list_is_refused(run, repository):
    (repository / "kernels/linear/BUILD").write_text("")
    code, _, err = run("--name=my-variant")
    assert code == 2 and "VARIANTS = [" in err
    assert not (repository / "kernels/linear/my_variant.cc").exists()


def test_an_empty_folder_becomes_a_workspace(run, repository, tmp_path):
    code, out, err = run("--name=my-variant", "--package=mine", stands=tmp_path)
    assert (code, err) == (0, "")
    mine = tmp_path / "mine"
    assert {path.name for path in mine.iterdir()} == {"my_variant.cc", "BUILD", "WORKSPACE",
                                                      ".bazelrc"}
    assert '        "my_variant.cc",\n    ],' in (mine / "BUILD").read_text()
    assert f'path = "{repository}"' in (mine / "WORKSPACE").read_text()
    assert f"import {repository}/.bazelrc" in (mine / ".bazelrc").read_text()
    assert "test :sweep_test" in out and str(mine) in out


def test_a_package_takes_a_second_variant(run, tmp_path):
    run("--name=my-variant", "--package=mine", stands=tmp_path)
    code, _, err = run("--name=another", "--package=mine", stands=tmp_path)
    assert (code, err) == (0, "")
    assert '        "another.cc",\n        "my_variant.cc",\n    ],' in (
        tmp_path / "mine/BUILD").read_text()
    before = _files(tmp_path / "mine")
    code, _, err = run("--name=another", "--package=mine", stands=tmp_path)
    assert code == 2 and "another" in err and "choose another name" in err
    assert _files(tmp_path / "mine") == before


def test_an_existing_file_is_kept(run, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/my_variant.cc").write_text("// Of other use.\n")
    code, _, err = run("--name=my-variant", "--package=mine", stands=tmp_path)
    assert code == 2 and "my_variant.cc is there already; choose another name" in err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["my_variant.cc"]


def test_a_workspace_that_does_not_know_the_suite_is_told(run, repository, tmp_path):
    (tmp_path / "theirs/kernels").mkdir(parents=True)
    (tmp_path / "theirs/WORKSPACE").write_text("")
    code, out, _ = run("--name=my-variant", "--package=theirs/kernels", stands=tmp_path)
    assert code == 0
    assert (tmp_path / "theirs/WORKSPACE").read_text() == ""
    assert f"add to {tmp_path}/theirs/WORKSPACE" in out and "ttbench_dependencies()" in out
    assert f"import {repository}/.bazelrc" in out
    (tmp_path / "theirs/WORKSPACE").write_text('load("@ttbench//tools:workspace.bzl", "x")\n')
    _, out, _ = run("--name=other", "--package=theirs/kernels", stands=tmp_path)
    assert "add to" not in out


def test_a_package_of_the_repository_needs_no_workspace(run, repository):
    code, out, _ = run("--name=my-variant", "--package=mine")
    assert code == 0 and "add to" not in out
    assert {path.name for path in (repository / "mine").iterdir()} == {"my_variant.cc", "BUILD"}
