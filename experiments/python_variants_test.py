import pathlib

import pytest

from experiments import peers
from experiments import peers_cells
from experiments import python_variants
from plotting import results


def _file(folder, text, name="proto.py"):
    path = pathlib.Path(folder, name)
    path.write_text(text, encoding="utf-8")
    return path


def test_names_are_of_the_function_or_of_the_file(tmp_path):
    _file(tmp_path, "", "My_proto2.py")
    plain = python_variants.parse("My_proto2.py", tmp_path)
    assert (plain.name, plain.function) == ("py-my-proto2", "")
    assert plain.path == str(tmp_path / "My_proto2.py")
    named = python_variants.parse("My_proto2.py:two_products", tmp_path)
    assert (named.name, named.function) == ("py-two-products", "two_products")
    assert named.algorithm == "My_proto2.py: two_products()"
    assert python_variants.parse(named.text) == named


@pytest.mark.parametrize("text, words", [
    ("none.py", "there is no Python file"), ("proto.txt", "there is no Python file"),
    ("", "there is no Python file"), (".", "there is no Python file"),
    ("proto.py:", "is no function's name; write proto.py:forward"),
    ("proto.py:a b", "'a b' is no function's name")])
def test_what_is_no_variant_is_refused(tmp_path, text, words):
    _file(tmp_path, "")
    _file(tmp_path, "", "proto.txt")
    with pytest.raises(python_variants.VariantError, match=words):
        python_variants.parse(text, tmp_path)


def test_loads_the_function_and_what_lies_beside_it(tmp_path):
    _file(tmp_path, "FACTOR = 3\n", "beside_proto.py")
    _file(tmp_path, "import beside_proto\n"
                    "def forward(x, cores): return x * beside_proto.FACTOR\n"
                    "def other(x, cores): return x\n")
    assert python_variants.load(python_variants.parse("proto.py", tmp_path))(5, []) == 15
    assert python_variants.load(python_variants.parse("proto.py:other", tmp_path))(5, []) == 5


@pytest.mark.parametrize("source, function, words", [
    ("def forward(x, cores", "", "could not be loaded: SyntaxError"),
    ("import no_such_package", "", "could not be loaded: ModuleNotFoundError: No module named"),
    ("1 / 0", "", "could not be loaded: ZeroDivisionError"),
    ("", "", r"has no function forward; write forward\(x, cores\), which returns y"),
    ("def mine(x, cores): pass", "", r"has no function forward; name one of mine as in proto.py:mine"),
    ("def mine(x, cores): pass", "yours", "has no function yours; name one of mine"),
    ("forward = 3", "", "has no function forward")])
def test_what_cannot_be_loaded_is_said_in_a_sentence(tmp_path, source, function, words):
    path = _file(tmp_path, source)
    with pytest.raises(python_variants.VariantError, match=words) as caught:
        python_variants.load(python_variants.Spec(str(path), function))
    assert len(str(caught.value).splitlines()) == 1
    assert str(path) in str(caught.value)


def test_two_of_one_name_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    _file(tmp_path, "")
    assert list(peers.python_specs(["proto.py", "proto.py:a", "proto.py:b"])) == [
        "py-proto", "py-a", "py-b"]
    with pytest.raises(python_variants.VariantError, match="two are named py-a; name a function"):
        peers.python_specs(["proto.py:a", "proto.py:a"])


def test_they_run_instead_of_the_libraries():
    variants = ["dense", "fused", "fused-panel", "sequential"]
    known = ["peer-a", "py-mine"]
    assert peers.choose_sides(None, variants, known, ["py-mine"]) == [
        "dense", "sequential", "fused", "fused-panel", "py-mine"]
    assert peers.choose_sides(["py-*", "peer-a"], variants, known, ["py-mine"]) == [
        "dense", "peer-a", "py-mine"]


def test_a_worker_that_refuses_ends_the_run_with_its_sentence(tmp_path):
    worker = _file(tmp_path, "print('{\"refused\": \"--python-variant: why\"}', flush=True)\n")
    workers = peers.Workers(["python3", str(worker)])
    with pytest.raises(ValueError, match="--python-variant: why"):
        workers.get()
    workers.end()


def test_rows_are_printed_with_their_ratios(tmp_path):
    cell = peers_cells.Cell((8, 8, 8), (8, 8, 8), (1, 4, 4, 1), 32, "train", 2)
    dense = peers_cells.Outcome("ok", figures={"peak_bytes": 4000}, samples=(10.0,))
    mine = peers_cells.Outcome("ok", "", "", {"peak_bytes": 1000}, (25.0,))
    writer = peers_cells.RowWriter(tmp_path)
    for side, outcome in (("dense", dense), ("py-a", mine),
                          ("py-b", peers_cells.Outcome("timeout", "too slow"))):
        writer.append(peers_cells.build_row(cell, side, outcome, dense, 1, "python"))
    lines = peers.format_rows(results.load(tmp_path).rows, {"py-a": 1, "py-b": 1}).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["2.5", "0.25", cell.name("py-a")], [cell.name("py-b"), "timeout:", "too", "slow"]]
