"""tools/prove_patches.py: what it reads in the table of patches, and what it makes of outcomes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import llama_source  # noqa: E402
import prove_patches  # noqa: E402
from prove_patches import Guard  # noqa: E402

TABLE = """
| patch | why | files | upstream | a test that fails without it |
|---|---|---|---|---|
| 0001-first | why | a.cpp | fault | test_a |
| 0002-second | why | a.cpp; untested: b.cpp | ours | test_a: test_one; test_b: test_two[x, y-z] |
| 0003-third | why | a.cpp | ours | does not build; test_a |
"""


def test_table() -> None:
    assert prove_patches.read_guards(TABLE) == {
        "0001-first": [Guard("test_a")],
        "0002-second": [
            Guard("test_a", "test_one"),
            Guard("test_b", "test_two[x"),
            Guard("test_b", "test_two[y-z"),
        ],
        "0003-third": [Guard("test_a")],
    }


@pytest.mark.parametrize("cell", ["all", "test_a, test_b", "test_a: test_one (x)", "test_a: one"])
def test_a_cell_that_is_no_test(cell: str) -> None:
    with pytest.raises(prove_patches.ProofError, match="0001-first"):
        prove_patches.read_guards(f"| 0001-first | why | a | ours | {cell} |")


def test_the_real_table_names_a_test_for_each_patch() -> None:
    guards = prove_patches.read_guards((ROOT / "patches" / "README.md").read_text())
    project = llama_source.Project(ROOT, ROOT)
    assert [f"{name}.patch" for name in guards] == llama_source.read_series(project)
    for guard in (guard for of_patch in guards.values() for guard in of_patch):
        file = ROOT / prove_patches.TESTS / f"{guard.file}.py"
        name = (guard.test or "test_").split("[")[0]
        assert re.search(rf"^def {name}", file.read_text(), re.MULTILINE), guard


def test_arguments_of_pytest() -> None:
    assert Guard("test_a").arguments == ["tests/native/test_a.py"]
    assert Guard("test_a", "test_two[x").arguments[1:] == ["-k", "test_two[x"]


def test_choice() -> None:
    known = ["0001-first", "0002-second"]
    assert prove_patches.choose([], known) == ["0002-second", "0001-first"]
    assert prove_patches.choose(["0001", "0002-second"], known) == known
    with pytest.raises(prove_patches.ProofError, match="there is no patch 0003"):
        prove_patches.choose(["0003"], known)


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        ((1, 1), "guarded"),
        ((1, -11), "guarded"),
        ((1, 0), "NOT GUARDED by test_1 (it passes)"),
        ((), "NOT GUARDED: the module builds, and no test is named"),
        ((5, 2), "NOT GUARDED by test_0 (none ran); test_1 (pytest ended with 2)"),
    ],
)
def test_verdict(statuses: tuple[int, ...], words: str) -> None:
    found = {Guard(f"test_{i}"): status for i, status in enumerate(statuses)}
    assert prove_patches.verdict(found) == words


def test_the_first_complaint_of_a_build() -> None:
    said = "error: of pip\n a/b.cpp:3:7: error: 'x' was not declared\n c.cpp:1:1: error: y"
    found = prove_patches._COMPLAINT.search(said)
    assert found is not None
    assert found[0] == "a/b.cpp:3:7: error: 'x' was not declared"


def test_leaving_a_patch_out(tmp_path: Path) -> None:
    """One that builds on it goes too; one that does not stays."""
    text = b"".join(b"line %d\n" % n for n in range(1, 31))
    hunk = "--- a/a.txt\n+++ b/a.txt\n@@ -{0},1 +{0},1 @@\n-{1}\n+{2}\n"
    patches = {
        "0001-first": hunk.format(3, "line 3", "third"),
        "0002-second": hunk.format(3, "third", "3rd"),
        "0003-third": hunk.format(20, "line 20", "twentieth"),
    }
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "series").write_text("".join(f"{name}.patch\n" for name in patches))
    for name, diff in patches.items():
        (tmp_path / "patches" / f"{name}.patch").write_text(diff)
    project = llama_source.Project(tmp_path, tmp_path)
    tree, left_out = prove_patches.without(project, {"a.txt": text}, "0001-first")
    assert left_out == ["0002-second"]
    assert tree["a.txt"] == text.replace(b"line 20", b"twentieth")
    tree, left_out = prove_patches.without(project, {"a.txt": text}, "0003-third")
    assert (left_out, tree["a.txt"]) == ([], text.replace(b"line 3\n", b"3rd\n"))
