"""tools/llama_source.py on a small made-up sdist: what it writes, keeps and refuses."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

import llama_source  # noqa: E402
import unified_diff  # noqa: E402

UPSTREAM = {
    "CMakeLists.txt": b"project(x)\n",
    "src/a.cpp": b"".join(b"line %d\n" % n for n in range(1, 31)),
    "src/b.cpp": b"one\r\ntwo\r\nno newline at the end",
    "docs/big.md": b"not wanted\n",
}
FIRST = b"""Purpose: the first change.

diff --git a/src/a.cpp b/src/a.cpp
--- a/src/a.cpp
+++ b/src/a.cpp
@@ -1,3 +1,4 @@
 line 1
+inserted
 line 2
 line 3
"""


@pytest.fixture
def project(tmp_path: Path) -> llama_source.Project:
    """A checkout with a pinned sdist in its cache, no patches and no tree yet."""
    (tmp_path / "extern").mkdir()
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "series").write_text("")
    (tmp_path / ".cache").mkdir()
    sdist = tmp_path / ".cache" / "pkg-1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for path, data in UPSTREAM.items():
            member = tarfile.TarInfo(f"pkg-1.0/third/llama/{path}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    lock = {
        "package": "pkg",
        "version": "1.0",
        "sha256": hashlib.sha256(sdist.read_bytes()).hexdigest(),
        "member": "third/llama",
        "llama_cpp_version": "b1",
        "include": ["CMakeLists.txt", "src"],
        "pristine_tree": "",
        "patched_tree": "",
    }
    project = llama_source.Project(tmp_path, tmp_path / "extern" / "llama.cpp")
    project.lock_file.write_text(json.dumps(lock))
    llama_source.record(project)
    return project


def add_patch(project: llama_source.Project, name: str, text: bytes) -> None:
    project.patch_file(name).write_bytes(text)
    with project.patch_file("series").open("a") as series:
        series.write(f"{name}\n")
    llama_source.record(project)


def edit(project: llama_source.Project, path: str, old: bytes, new: bytes) -> None:
    file = project.tree / path
    text = file.read_bytes()
    assert old in text
    file.write_bytes(text.replace(old, new))


def mtimes(project: llama_source.Project) -> dict[str, int]:
    return {
        path: (project.tree / path).stat().st_mtime_ns
        for path in llama_source.read_tree(project.tree)
    }


def age(project: llama_source.Project) -> dict[str, int]:
    for path in llama_source.read_tree(project.tree):
        os.utime(project.tree / path, ns=(10**18, 10**18))
    return mtimes(project)


def test_patch_writes_the_wanted_files_byte_for_byte(project: llama_source.Project) -> None:
    llama_source.patch(project)
    expected = {path: UPSTREAM[path] for path in ("CMakeLists.txt", "src/a.cpp", "src/b.cpp")}
    assert llama_source.read_tree(project.tree) == expected
    assert "as the lock says" in llama_source.check(project)


def test_patch_twice_does_nothing(project: llama_source.Project) -> None:
    llama_source.patch(project)
    project.cache.joinpath("pkg-1.0.tar.gz").unlink()
    before = age(project)
    assert llama_source.patch(project) == "nothing to do"
    assert mtimes(project) == before


def test_a_new_patch_touches_only_its_files(project: llama_source.Project) -> None:
    llama_source.patch(project)
    before = age(project)
    add_patch(project, "0001-first.patch", FIRST)
    llama_source.patch(project)
    after = mtimes(project)
    assert {path for path in after if after[path] != before[path]} == {"src/a.cpp"}
    assert b"line 1\ninserted\nline 2\n" in (project.tree / "src/a.cpp").read_bytes()


def test_a_patch_taken_out_of_the_series_is_undone(project: llama_source.Project) -> None:
    add_patch(project, "0001-first.patch", FIRST)
    llama_source.patch(project)
    project.patch_file("series").write_text("# none\n")
    llama_source.record(project)
    llama_source.patch(project)
    assert (project.tree / "src/a.cpp").read_bytes() == UPSTREAM["src/a.cpp"]


def test_hand_edits_in_the_way_are_refused_then_forced(project: llama_source.Project) -> None:
    llama_source.patch(project)
    edit(project, "src/a.cpp", b"line 9\n", b"line nine\n")
    add_patch(project, "0001-first.patch", FIRST)
    with pytest.raises(llama_source.SourceError, match=r"(?s)src/a\.cpp.*refresh.*--force"):
        llama_source.patch(project)
    assert b"line nine" in (project.tree / "src/a.cpp").read_bytes()
    llama_source.patch(project, force=True)
    assert b"line nine" not in (project.tree / "src/a.cpp").read_bytes()
    llama_source.check(project)


def test_hand_edits_out_of_the_way_survive(project: llama_source.Project) -> None:
    llama_source.patch(project)
    edit(project, "src/b.cpp", b"two", b"TWO")
    add_patch(project, "0001-first.patch", FIRST)
    llama_source.patch(project)
    assert b"TWO" in (project.tree / "src/b.cpp").read_bytes()
    assert b"inserted" in (project.tree / "src/a.cpp").read_bytes()
    with pytest.raises(llama_source.SourceError, match=r"src/b\.cpp"):
        llama_source.check(project)


def test_force_discards_edits_even_when_the_series_is_unchanged(
    project: llama_source.Project,
) -> None:
    llama_source.patch(project)
    edit(project, "src/b.cpp", b"two", b"TWO")
    llama_source.patch(project, force=True)
    assert (project.tree / "src/b.cpp").read_bytes() == UPSTREAM["src/b.cpp"]


def test_files_made_by_hand_are_noticed(project: llama_source.Project) -> None:
    llama_source.patch(project)
    (project.tree / "src" / "c.cpp").write_text("new\n")
    with pytest.raises(llama_source.SourceError, match=r"src/c\.cpp"):
        llama_source.check(project)


def test_refresh_round_trip(project: llama_source.Project) -> None:
    add_patch(project, "0001-first.patch", FIRST)
    llama_source.patch(project)
    edit(project, "src/a.cpp", b"line 20\n", b"line twenty\n")
    edit(project, "src/b.cpp", b"at the end", b"still")
    (project.tree / "src" / "c.cpp").write_text("new\n")
    (project.tree / "CMakeLists.txt").unlink()
    wanted = llama_source.read_tree(project.tree)

    llama_source.refresh(project, "0002-second.patch")

    llama_source.check(project)
    assert llama_source.read_series(project) == ["0001-first.patch", "0002-second.patch"]
    assert b"inserted" not in project.patch_file("0002-second.patch").read_bytes()
    llama_source.patch(project, until="none")
    assert (project.tree / "src/a.cpp").read_bytes() == UPSTREAM["src/a.cpp"]
    llama_source.patch(project)
    assert llama_source.read_tree(project.tree) == wanted


def test_refresh_is_stable_and_keeps_the_prose(project: llama_source.Project) -> None:
    add_patch(project, "0001-first.patch", FIRST)
    llama_source.patch(project)
    llama_source.refresh(project, "0001-first.patch")
    once = project.patch_file("0001-first.patch").read_bytes()
    llama_source.refresh(project, "0001-first.patch")
    assert project.patch_file("0001-first.patch").read_bytes() == once
    assert once.startswith(b"Purpose: the first change.\n\ndiff --git ")


def test_refresh_of_an_earlier_patch(project: llama_source.Project) -> None:
    add_patch(project, "0001-first.patch", FIRST)
    llama_source.patch(project)
    edit(project, "src/a.cpp", b"line 20\n", b"line twenty\n")
    llama_source.refresh(project, "0002-second.patch")
    with pytest.raises(llama_source.SourceError, match=r"--until 0001-first\.patch"):
        llama_source.refresh(project, "0001-first.patch")
    llama_source.patch(project, until="0001-first.patch")
    edit(project, "src/a.cpp", b"inserted\n", b"inserted\ntwice\n")
    llama_source.refresh(project, "0001-first.patch")
    llama_source.patch(project)
    text = (project.tree / "src/a.cpp").read_bytes()
    assert b"inserted\ntwice\n" in text
    assert b"line twenty\n" in text


def test_refresh_refuses_a_tree_that_lacks_a_colleagues_patch(
    project: llama_source.Project,
) -> None:
    llama_source.patch(project)
    edit(project, "src/b.cpp", b"two", b"TWO")
    add_patch(project, "0001-first.patch", FIRST)
    with pytest.raises(llama_source.SourceError, match="not at the state"):
        llama_source.refresh(project, "0002-mine.patch")
    llama_source.patch(project)
    llama_source.refresh(project, "0002-mine.patch")
    assert b"inserted" not in project.patch_file("0002-mine.patch").read_bytes()


def test_refresh_without_edits_writes_nothing(project: llama_source.Project) -> None:
    llama_source.patch(project)
    with pytest.raises(llama_source.SourceError, match="no edits"):
        llama_source.refresh(project, "0001-empty.patch")
    assert not project.patch_file("0001-empty.patch").exists()


def test_another_sdist_is_refused(project: llama_source.Project) -> None:
    sdist = project.cache / "pkg-1.0.tar.gz"
    sdist.write_bytes(sdist.read_bytes() + b"x")
    with pytest.raises(llama_source.SourceError, match=r"(?s)found.*needed.*fetch"):
        llama_source.fetch(project, llama_source.load_lock(project))


def test_a_failed_download_says_what_to_do(
    project: llama_source.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.cache / "pkg-1.0.tar.gz").unlink()
    answer = subprocess.CompletedProcess([], 1, stdout="no route to the index")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    with pytest.raises(llama_source.SourceError) as caught:
        llama_source.fetch(project, llama_source.load_lock(project))
    for part in ("no route to the index", "Needed: pip", "JMM_LLAMA_CPP_DIR", "pkg-1.0.tar.gz"):
        assert part in str(caught.value)
    assert list(project.cache.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b" line 2\n", b" line 2 \n", r"hunk 1 \(line 1\) does not match.*needed 'line 2 "),
        (b"-1,3 +1,4", b"-1,4 +1,5", "cut short"),
        (b"a/src/a.cpp\n+++", b"a/src/z.cpp\n+++", "does not exist"),
    ],
)
def test_a_patch_that_does_not_apply_names_itself(
    project: llama_source.Project, old: bytes, new: bytes, message: str
) -> None:
    assert old in FIRST
    project.patch_file("0001-bad.patch").write_bytes(FIRST.replace(old, new))
    project.patch_file("series").write_text("0001-bad.patch\n")
    with pytest.raises(llama_source.SourceError, match=rf"(?s)0001-bad\.patch.*{message}"):
        llama_source.patch(project)
    assert not project.tree.exists()


def test_an_unrecorded_patch_stops_the_build(
    project: llama_source.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.patch_file("0001-first.patch").write_bytes(FIRST)
    project.patch_file("series").write_text("0001-first.patch\n")
    assert llama_source.main(["patch"], root=project.root) == 1
    assert "refresh" in capsys.readouterr().err
    assert not project.tree.exists()


def test_a_changed_include_list_is_noticed(project: llama_source.Project) -> None:
    lock = json.loads(project.lock_file.read_text())
    project.lock_file.write_text(json.dumps({**lock, "include": ["src"]}))
    with pytest.raises(llama_source.SourceError, match="pristine tree"):
        llama_source.patch(project)


def test_the_tree_option_works_elsewhere(project: llama_source.Project, tmp_path: Path) -> None:
    assert llama_source.main(["--tree", str(tmp_path / "other"), "patch"], root=project.root) == 0
    assert (tmp_path / "other" / "src" / "a.cpp").exists()
    assert not project.tree.exists()


def test_check_without_a_tree_names_the_next_command(project: llama_source.Project) -> None:
    with pytest.raises(llama_source.SourceError, match=r"llama_source\.py patch"):
        llama_source.check(project)


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("src/a/b.cpp", True),
        ("src2/a.cpp", False),
        ("ggml/src/ggml.c", True),
        ("ggml/src/ggml-opencl/x.cpp", False),
        ("tools/mtmd/clip.cpp", True),
        ("tools/mtmd/README.md", False),
    ],
)
def test_include_patterns_match_folder_by_folder(path: str, wanted: bool) -> None:
    assert llama_source.wanted(path, ["src", "ggml/src/*.*", "tools/mtmd/*.cpp"]) is wanted


class TestUnifiedDiff:
    def test_a_moved_hunk_is_found_when_unique(self) -> None:
        tree = {"src/a.cpp": b"new head\n" * 5 + UPSTREAM["src/a.cpp"]}
        text = unified_diff.apply(tree, FIRST)["src/a.cpp"]
        assert b"line 1\ninserted\nline 2\n" in text

    def test_a_moved_hunk_with_two_places_is_refused(self) -> None:
        tree = {"src/a.cpp": b"head\n" + UPSTREAM["src/a.cpp"] * 2}
        with pytest.raises(unified_diff.PatchError):
            unified_diff.apply(tree, FIRST)

    def test_the_given_tree_stays(self) -> None:
        tree = {"src/a.cpp": UPSTREAM["src/a.cpp"]}
        unified_diff.apply(tree, FIRST)
        assert tree == {"src/a.cpp": UPSTREAM["src/a.cpp"]}

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (b"a\nb\n", b"a\nb"),
            (b"a", b"a\nb"),
            (b"a\nb", b"a\nc"),
            (b"", b"x\n"),
            (b"a\r\nb\r\n", b"a\nb\r\n"),
            (b"1\n2\n3\n4\n5\n6\n7\n8\n9\n", b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"),
            (b"\n\n\n\n\n", b"\n\n\nx\n\n\n"),
            (b"-- a\n++ b\n", b"--- a\n+++ b\n"),
        ],
    )
    def test_render_and_apply_are_inverse(self, old: bytes, new: bytes) -> None:
        patch = unified_diff.render({"f": old}, {"f": new})
        assert unified_diff.apply({"f": old}, patch) == {"f": new}
        back = unified_diff.render({"f": new}, {"f": old})
        assert unified_diff.apply({"f": new}, back) == {"f": old}

    @pytest.mark.parametrize("text", [b"x\n", b"x", b"x\ny\n"])
    def test_new_and_deleted_files(self, text: bytes) -> None:
        patch = unified_diff.render({}, {"d/f": text})
        assert unified_diff.apply({}, patch) == {"d/f": text}
        gone = unified_diff.render({"d/f": text}, {})
        assert unified_diff.apply({"d/f": text}, gone) == {}
        with pytest.raises(unified_diff.PatchError, match="exists already"):
            unified_diff.apply({"d/f": text}, patch)

    def test_git_reads_what_is_rendered(self, tmp_path: Path) -> None:
        git = pytest.importorskip("shutil").which("git")
        if git is None:
            pytest.skip("git is not installed")
        old = UPSTREAM["src/a.cpp"]
        new = old.replace(b"line 3\n", b"").replace(b"line 25\n", b"line 25\nmore\n")
        (tmp_path / "f").write_bytes(old)
        (tmp_path / "p").write_bytes(unified_diff.render({"f": old}, {"f": new}))
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
        subprocess.run([git, "apply", "p"], cwd=tmp_path, env=environment, check=True)
        assert (tmp_path / "f").read_bytes() == new

    @pytest.mark.parametrize(
        "patch",
        [
            b"prose only\n",
            b"diff --git a/f b/f\nGIT binary patch\n",
            b"diff --git a/f b/g\nrename from f\nrename to g\n",
            b"--- a/f\n+++ b/f\n",
            b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n+3\n",
        ],
    )
    def test_what_it_cannot_do_is_an_error(self, patch: bytes) -> None:
        with pytest.raises(unified_diff.PatchError):
            unified_diff.apply({"f": b"1\n"}, patch)
