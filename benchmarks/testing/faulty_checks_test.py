"""The checks of variants must tell a variant's writer what is wrong and what to do.

Runs them with variants that go wrong (faulty_variants.cc) and with what //kernels:new_variant writes.
"""

import pathlib
import re
import subprocess

import pytest

CHECKS = pathlib.Path("benchmarks/testing/faulty_checks").absolute()


def check(variant, tests="*"):
    """Exit code and output of some of a variant's checks."""
    name = variant.replace("-", "_")
    done = subprocess.run([CHECKS, f"--gtest_filter=*{tests}/{name}"], capture_output=True, text=True,
                          env={}, timeout=120)
    assert "Running 0 tests" not in done.stdout
    return done.returncode, done.stdout


@pytest.mark.parametrize("variant, tests, words", [
    ("test-alias", "OutputIsContiguousAndAliasesNothing",
     "y of 'test-alias' shares its memory with x or a parameter: Forward() has to return a tensor "
     "of its own; clone() it"),
    ("test-gradient", "EqualsTheOracle",
     "the gradient of 'parameter 2' is not the oracle's: correct the backward of 'test-gradient'"),
    ("test-detached", "EqualsTheOracle", "y of 'test-detached' has no history"),
    ("test-wrong", "EqualsTheOracle", "y of 'test-wrong' is not the oracle's: correct Forward()"),
    ("test-throws", "EqualsTheOracle",
     "'test-throws' throws on 6x6:6x6 with ranks 1x3x1 and batch 1, which its WhyUnsupported() does "
     "not refuse: the layer gave up; return a reason there, or compute it"),
    ("test-leak", "EqualsWhatIsMeasured", "bytes outlive the iteration, the first by clone"),
    ("test-bad-model", "EqualsWhatIsMeasured",
     "the cost model of 'test-bad-model' fails on 6x6:6x6 with ranks 1x3x1"),
    ("test-mismodelled", "EqualsWhatIsMeasured", "they part at allocation event 1"),
])
def test_mistake_gives_a_sentence(variant, tests, words):
    code, output = check(variant, tests)
    assert code == 1
    assert words in output


def test_skeleton_computes_rightly():
    code, output = check("test-skeleton", "VariantTest*")
    assert code == 0, output


def test_skeleton_lacks_a_cost_model_and_is_shown_what():
    code, output = check("test-skeleton", "MemoryModelTest.EqualsWhatIsMeasured")
    assert code == 1
    assert "'test-skeleton' on 6x6:6x6 ranks 1x3x1 b1 inference float32: measured bytes" in output
    # As docs/adding-a-variant.md shows it.
    page = pathlib.Path("docs/adding-a-variant.md").read_text(encoding="utf-8")
    shown = [line for line in page.splitlines() if re.match(r"[> ] +(\d+ +[+-]|measured, by)", line)]
    assert len(shown) == 6
    for line in shown:
        assert line in output.splitlines()
    # The permuted copy of core 2, [6, 3 6], the first product, [6, 3 6], and y, [1, 36], which is all
    # that the model has.
    assert re.search(r">    1 +\+432  reshape +\| +\+144  y +<- they part here", output), output
    assert re.search(r"\n     2 +\+432  mm +\|", output), output
    assert "Name what is missing in its Trace(), or take it out of Forward()." in output
