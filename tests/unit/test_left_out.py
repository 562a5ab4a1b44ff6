"""Where nothing may be left out, a test that is skipped fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SKIPPED = """
import pytest

@pytest.mark.skipif(True, reason="npm is not installed")
def test_marked() -> None: ...

def test_within() -> None:
    pytest.skip("there is no dash here")

def test_of_the_kernel() -> None:
    pytest.skip("this kernel has no btrfs")

@pytest.fixture
def furniture() -> None:
    pytest.skip("busctl is not installed")

def test_in_its_fixture(furniture: None) -> None: ...

def test_that_runs() -> None: ...
"""
SKIPPED_AS_A_WHOLE = """
import pytest

pytest.importorskip("no_such_module")
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    shutil.copy(TESTS / "conftest.py", tmp_path)
    return tmp_path


def run(suite: Path, workers: str, everything: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:libtmux", "-n", workers, suite],
        env=os.environ | {"PYTHONPATH": str(TESTS), "AMUX_TEST_EVERYTHING": everything},
        cwd=suite,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_could_be_installed_must_be(suite: Path, workers: str) -> None:
    (suite / "test_some.py").write_text(SKIPPED)
    in_ci = run(suite, workers, "yes")
    assert in_ci.returncode == pytest.ExitCode.TESTS_FAILED
    for reason in ("npm is not installed", "busctl is not installed", "there is no dash here"):
        assert f"nothing may be left out: {reason}" in in_ci.stdout
    assert "left out: this kernel" not in in_ci.stdout
    assert "1 failed, 1 passed, 1 skipped, 2 errors" in in_ci.stdout


@pytest.mark.parametrize("workers", ["0", "2"])
def test_so_must_what_a_whole_file_needs(suite: Path, workers: str) -> None:
    (suite / "test_some.py").write_text(SKIPPED)
    (suite / "test_whole.py").write_text(SKIPPED_AS_A_WHOLE)
    in_ci = run(suite, workers, "yes")
    assert in_ci.returncode != 0
    assert "nothing may be left out: could not import 'no_such_module'" in in_ci.stdout


def test_elsewhere_it_is_skipped(suite: Path) -> None:
    (suite / "test_some.py").write_text(SKIPPED)
    at_home = run(suite, "0", "")
    assert at_home.returncode == 0
    assert "1 passed, 4 skipped" in at_home.stdout
