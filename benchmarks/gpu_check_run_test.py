"""The script ends with a sentence and its exit code wherever there is no device to check."""

import os
import stat
import sys

import pytest

from benchmarks import gpu_check_run

VERSION = """__version__ = '{version}'
debug = False
cuda: Optional[str] = {cuda}
"""

ROWS = ("schema,cell,status,time_ns,time_ratio_to_dense,peak_bytes,peak_ratio_to_dense,gflops,"
        "max_relative_error,reason\r\n")


@pytest.fixture(name="site")
def fixture_site(tmp_path, monkeypatch):
    """Installs a torch of a version as the only one that Python finds."""
    def install(version="2.11.0+cu130", cuda="'13.0'"):
        package = tmp_path / "site" / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise ImportError('it must not be imported')")
        (package / "version.py").write_text(VERSION.format(version=version, cuda=cuda))
        (tmp_path / "site" / "nvidia" / "cu13" / "lib").mkdir(parents=True)
        monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
        return package
    monkeypatch.setattr(sys, "path", [])
    sys.modules.pop("torch", None)
    return install


@pytest.fixture(name="bundle")
def fixture_bundle(tmp_path):
    """A directory with a program in the place of gpu_check: `body`, with $1 the command."""
    def make(body):
        here = tmp_path / "bundle"
        here.mkdir()
        program = here / "gpu_check"
        program.write_text("#!/bin/sh\n" + body)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return here
    return make


WELL = """
case $1 in
  device) echo '{"name": "a device"}' ;;
  tests) echo "$LD_LIBRARY_PATH"; echo '[  PASSED  ] 5 tests.' ;;
  sweep) out=${3#--out=}
    printf '%s' "$ROWS" > "$out/results.csv"
    printf '1,a/cell,%s,2000,0.5,1048576,0.25,3000,1e-7,\\r\\n' "${STATUS:-ok}" >> "$out/results.csv" ;;
esac
"""


def run(here, out):
    return gpu_check_run.main([f"--out={out}"], here)


def test_no_torch(site, bundle, tmp_path, capsys):
    del site
    assert run(bundle(WELL), tmp_path / "out") == 3
    assert "has no torch; run this by a Python that has torch 2.11.0" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("version, cuda, sentence", [
    ("2.9.1+cu128", "'12.8'", "has torch 2.9.1+cu128; gpu_check was built for torch 2.11.0"),
    ("2.11.0+cu126", "'12.6'", "is for CUDA 12.6; gpu_check needs the one for CUDA 13.x"),
    ("2.11.0+cpu", "None", "is for the CPU alone"),
])
def test_another_torch(site, bundle, tmp_path, capsys, version, cuda, sentence):
    site(version, cuda)
    assert run(bundle(WELL), tmp_path / "out") == 3
    assert sentence in capsys.readouterr().err


def test_no_device(site, bundle, tmp_path, capsys):
    site()
    here = bundle("echo 'gpu_check: no CUDA device: the driver lists none' >&2; exit 3\n")
    assert run(here, tmp_path / "out") == 3
    assert capsys.readouterr().err == "gpu_check: no CUDA device: the driver lists none\n"


def test_no_program(site, tmp_path, capsys):
    site()
    assert run(tmp_path, tmp_path / "out") == 3
    assert "is missing; unpack the whole" in capsys.readouterr().err


def test_all_well(site, bundle, tmp_path, capsys, monkeypatch):
    package = site()
    monkeypatch.setenv("ROWS", ROWS)
    out = tmp_path / "out"
    here = bundle(WELL)
    assert run(here, out) == 0
    printed = capsys.readouterr().out
    assert "| a/cell | ok | 2.0 | 0.50 | 1.0 | 0.25 | 3.00 | 1.0e-07 |" in printed
    assert "tests: passed; cells: 1 ok, 0 failed, 0 skipped" in printed
    assert (out / "summary.md").read_text() in printed
    paths = (out / "tests.txt").read_text().splitlines()[0].split(":")
    assert paths[:3] == [str(here / "lib"), str(package / "lib"),
                         str(package.parent / "nvidia" / "cu13" / "lib")]
    assert run(here, out) == 2  # Never over an earlier run.


def test_a_wrong_cell(site, bundle, tmp_path, capsys, monkeypatch):
    site()
    monkeypatch.setenv("ROWS", ROWS)
    monkeypatch.setenv("STATUS", "wrong")
    assert run(bundle(WELL), tmp_path / "out") == 1
    assert "1 failed" in capsys.readouterr().out


@pytest.mark.parametrize("tests", ["echo '[  FAILED  ] A.B'; exit 1", "echo '[  PASSED  ] 0 tests.'"])
def test_tests_that_fail_or_do_not_run(site, bundle, tmp_path, capsys, monkeypatch, tests):
    site()
    monkeypatch.setenv("ROWS", ROWS)
    here = bundle(f'if [ "$1" = tests ]; then {tests}; exit 0; fi\n' + WELL)
    assert run(here, tmp_path / "out") == 1
    assert "tests: FAILED" in capsys.readouterr().out


def test_a_sweep_out_of_time_keeps_its_rows(site, bundle, tmp_path, capsys, monkeypatch):
    site()
    monkeypatch.setenv("ROWS", ROWS)
    monkeypatch.setattr(gpu_check_run, "LIMIT_S", 2)
    # exec: what is stopped is the program that the script started.
    here = bundle(WELL + 'if [ "$1" = sweep ]; then exec sleep 60; fi\n')
    assert run(here, tmp_path / "out") == 1
    printed = capsys.readouterr().out
    assert "1 ok" in printed and "stopped for time" in printed


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_directory_that_cannot_be_written(site, bundle, tmp_path, capsys):
    site()
    tmp_path.chmod(0o500)
    assert run(bundle(WELL), tmp_path / "out") == 4
    assert "cannot write" in capsys.readouterr().err
