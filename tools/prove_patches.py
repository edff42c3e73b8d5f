"""Shows of each patch that its tests notice when it is missing.

    python tools/prove_patches.py              every patch, the newest first
    python tools/prove_patches.py 0034 0033    these

Builds the module as it is and runs the tests that ``patches/README.md`` names, which must pass;
then builds it without one patch after the other, where each of its tests must fail. A patch that
later ones are built on is left out together with them, and a module that cannot be built without a
patch needs no test. All is kept in ``build/prove``, so that only what a patch changes is compiled.

Run it with the environment of ``pip install '.[dev,test]'``. The first build takes minutes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import llama_source
import unified_diff
from unified_diff import Tree

ROOT = Path(__file__).resolve().parents[1]
TESTS = "tests/native"
TIMEOUT = 900  # seconds; a test may hang without its patch
_ROW = re.compile(r"^\| (\d{4}-[\w-]+) \|.*\| (.+) \|$", re.MULTILINE)
_ENTRY = re.compile(r"(test_\w+)(?:: (test_\w+)(?:\[([^\]]+)\])?)?")
_COMPLAINT = re.compile(r"\S+:\d+:\d+: (?:fatal )?error: .*|undefined reference to .*")
_NO_MODULE = "does not build"
_FAILED, _NONE_RAN = 1, 5  # pytest's exit statuses; it has 0 where all are skipped


class ProofError(Exception):
    """The table cannot be read, or the unchanged module does not build."""


@dataclass(frozen=True)
class Guard:
    """A test of ``tests/native``, or all of a file.

    Attributes:
        file: Without the folder and ``.py``.
        test: What the name begins with, parameters included; None for the whole file.
    """

    file: str
    test: str | None = None

    def __str__(self) -> str:
        return self.file if self.test is None else f"{self.file}: {self.test}"

    @property
    def arguments(self) -> list[str]:
        """For pytest."""
        chosen = [] if self.test is None else ["-k", self.test]
        return [f"{TESTS}/{self.file}.py", *chosen]


def read_guards(table: str) -> dict[str, list[Guard]]:
    """Reads ``patches/README.md``: ``file``, ``file: test`` or ``file: test[id, id]``, with ";".

    "does not build" may stand beside them.

    Returns:
        ``{patch: its tests}``, a patch without ".patch".

    Raises:
        ProofError: A row names its tests otherwise.
    """
    return {name: list(_guards(name, cell)) for name, cell in _ROW.findall(table)}


def _guards(name: str, cell: str) -> Iterator[Guard]:
    for entry in cell.split("; "):
        if entry == _NO_MODULE:
            continue
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ProofError(
                f"patches/README.md names the test of {name} as {entry!r}; "
                "'file', 'file: test' or 'file: test[id, id]' is needed, several with '; '"
            )
        file, test, ids = match.groups()
        for one in ids.split(", ") if ids else [None]:
            yield Guard(file, test if one is None else f"{test}[{one}")


def choose(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """The patches that begin with ``names``; all, the newest first, without one.

    Raises:
        ProofError: There is no such patch.
    """
    found = []
    for name in names or reversed(known):
        fits = [patch for patch in known if patch.startswith(name)]
        if not fits:
            raise ProofError(f"there is no patch {name}; there are {', '.join(known)}")
        found += fits
    return found


def without(project: llama_source.Project, tree: Tree, name: str) -> tuple[Tree, list[str]]:
    """Applies the series to the pristine tree without one patch.

    Returns:
        The tree, and the later patches that do not apply then and are left out too.
    """
    left_out = []
    for patch in llama_source.read_series(project):
        if patch == f"{name}.patch":
            continue
        try:
            tree = unified_diff.apply(tree, llama_source.read_patch(project, patch))
        except unified_diff.PatchError:
            left_out.append(patch.removesuffix(".patch"))
    return tree, left_out


class Workshop:
    """A tree, a build folder, and an environment that imports what was built from them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Where ccache finds them as it did in the checkout: see CCACHE_BASEDIR.
        self.tree = folder / "extern" / "llama.cpp"
        self.objects = folder / "build" / "objects"
        self.site = folder / "site"
        self.log = folder / "log.txt"
        self.tree.mkdir(parents=True, exist_ok=True)
        venv.create(folder / "venv", with_pip=False)
        # Its site-packages come first and hold no editable jmm.
        paths = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
        inner = Path(sysconfig.get_path("purelib", "venv", paths))
        outer = sysconfig.get_path("purelib")
        (inner / "prove.pth").write_text(f"{self.site}\n{outer}\n")

    def write(self, tree: Tree) -> None:
        """Brings the tree on disk to ``tree``; only files that differ get a new time."""
        found = llama_source.read_tree(self.tree)
        for path in found.keys() - tree.keys():
            (self.tree / path).unlink()
        for path, data in tree.items():
            if found.get(path) != data:
                (self.tree / path).parent.mkdir(parents=True, exist_ok=True)
                (self.tree / path).write_bytes(data)

    def build(self) -> str:
        """Builds and installs; the compiler's first complaint, or nothing."""
        options = ["--no-build-isolation", "--no-deps", "--quiet", "--upgrade"]
        options += ["--target", str(self.site), f"-Cbuild-dir={self.objects}"]
        options += [f"-Ccmake.define.JMM_LLAMA_CPP_DIR={self.tree}", str(ROOT)]
        status, said = self._run([sys.executable, "-m", "pip", "install", *options])
        complaint = _COMPLAINT.search(said)
        return "" if status == 0 else complaint[0] if complaint else f"see {self.log}"

    def status(self, guard: Guard) -> int:
        """pytest's exit status; below 0 for a signal, or for no end in time."""
        python = self.folder / "venv" / "bin" / "python"
        options = ["-q", "-x", "-p", "no:cacheprovider", f"--basetemp={self.folder / 'tmp'}"]
        command = [str(python), "-m", "pytest", *options, *guard.arguments]
        status, said = self._run(command, timeout=TIMEOUT)
        return status if status or re.search(r"\d passed", said) else _NONE_RAN

    def _run(self, command: list[str], timeout: int | None = None) -> tuple[int, str]:
        with self.log.open("a+", encoding="utf-8", errors="replace") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            before = log.tell()
            try:
                status = subprocess.run(
                    command, cwd=ROOT, stdout=log, stderr=log, timeout=timeout, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                status = -1
            log.seek(before)
            return status, log.read()


def verdict(statuses: dict[Guard, int]) -> str:
    """What the tests without a patch say."""
    if not statuses:
        return "NOT GUARDED: the module builds, and no test is named"
    why = {0: "it passes", _NONE_RAN: "none ran"}
    wrong = [
        f"{guard} ({why.get(status, f'pytest ended with {status}')})"
        for guard, status in statuses.items()
        if status >= 0 and status != _FAILED
    ]
    return f"NOT GUARDED by {'; '.join(wrong)}" if wrong else "guarded"


def prove(workshop: Workshop, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields each patch with its verdict.

    Raises:
        ProofError: The module cannot be built, or a test fails, with all patches.
    """
    project = llama_source.Project(ROOT, ROOT / "extern" / "llama.cpp")
    guards = read_guards((ROOT / "patches" / "README.md").read_text(encoding="utf-8"))
    chosen = choose(names, list(guards))
    pristine = llama_source.pristine_tree(project, llama_source.load_lock(project))
    series = llama_source.read_series(project)
    workshop.write(llama_source.apply_patches(project, pristine, series))
    if complaint := workshop.build():
        raise ProofError(f"the module does not build with all patches: {complaint}")
    for guard in dict.fromkeys(guard for name in chosen for guard in guards[name]):
        if workshop.status(guard) not in (0, _NONE_RAN):
            raise ProofError(f"{guard} fails with all patches: see {workshop.log}")
    for name in chosen:
        tree, left_out = without(project, pristine, name)
        workshop.write(tree)
        if complaint := workshop.build():
            found = f"guarded, the module does not build: {complaint}"
        else:
            found = verdict({guard: workshop.status(guard) for guard in guards[name]})
        more = f" (without {', '.join(left_out)} too)" if left_out else ""
        yield name, f"{found}{more}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a patch is not guarded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("patches", nargs="*", metavar="NAME", help="how a patch's name begins")
    names = parser.parse_args(arguments).patches
    all_guarded = True
    try:
        for name, found in prove(Workshop(ROOT / "build" / "prove"), names):
            print(f"{name}: {found}", flush=True)
            all_guarded &= found.startswith("guarded")
    except (ProofError, llama_source.SourceError) as error:
        print(f"prove_patches: {error}", file=sys.stderr)
        return 1
    return 0 if all_guarded else 1


if __name__ == "__main__":
    sys.exit(main())
