"""Gets, patches and checks the llama.cpp tree in ``extern/llama.cpp``; nothing else touches it.

    python tools/llama_source.py fetch            download the pinned sdist and verify it
    python tools/llama_source.py patch            write the patched tree (fetches if it must)
    python tools/llama_source.py check            is the tree what the lock says?
    python tools/llama_source.py refresh NAME     write hand edits of the tree to patches/NAME
    python tools/llama_source.py refresh          record the tree hashes in the lock

``extern/llama.cpp.lock`` pins the sdist and both tree hashes, ``patches/series`` names the
patches in order. A stamp inside the tree remembers what was written there, so that nothing
is done when nothing changed, only changed files get a new mtime, and hand edits are noticed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import unified_diff
from unified_diff import Tree

STAMP = ".jmm-stamp.json"
SELF = "python tools/llama_source.py"


class SourceError(Exception):
    """The source tree cannot be made or trusted; the message names the next command."""


@dataclass(frozen=True)
class Lock:
    """What ``extern/llama.cpp.lock`` pins."""

    package: str
    version: str
    sha256: str
    member: str
    llama_cpp_version: str
    include: list[str]
    pristine_tree: str
    patched_tree: str

    @property
    def sdist_name(self) -> str:
        """File name of the sdist."""
        return f"{self.package}-{self.version}.tar.gz"


@dataclass(frozen=True)
class Stamp:
    """What was last written into the tree.

    Attributes:
        sdist: sha256 of the sdist.
        patches: sha256 of each applied patch, in the order of the series.
        files: sha256 of each file as it was written.
    """

    sdist: str = ""
    patches: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Project:
    """Where things lie.

    Attributes:
        root: The checkout of jmm.
        tree: The llama.cpp tree to work on, ``extern/llama.cpp`` unless given.
    """

    root: Path
    tree: Path

    @property
    def lock_file(self) -> Path:
        return self.root / "extern" / "llama.cpp.lock"

    @property
    def cache(self) -> Path:
        return self.root / ".cache"

    def patch_file(self, name: str) -> Path:
        return self.root / "patches" / name


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tree_hash(tree: Tree) -> str:
    """Hashes sorted relative paths and contents; modes and times do not count."""
    digest = hashlib.sha256()
    for path in sorted(tree):
        digest.update(f"{path}\0{sha256(tree[path])}\n".encode())
    return digest.hexdigest()


def load_lock(project: Project) -> Lock:
    try:
        return Lock(**json.loads(project.lock_file.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise SourceError(
            f"{project.lock_file} cannot be used: {error}\n"
            "Restore it: git checkout -- extern/llama.cpp.lock"
        ) from error


def save_lock(project: Project, lock: Lock) -> None:
    _replace_file(project.lock_file, (json.dumps(asdict(lock), indent=2) + "\n").encode())


def load_stamp(project: Project) -> Stamp:
    try:
        return Stamp(**json.loads((project.tree / STAMP).read_text()))
    except (OSError, ValueError, TypeError):
        return Stamp()


def save_stamp(project: Project, stamp: Stamp) -> None:
    _replace_file(project.tree / STAMP, json.dumps(asdict(stamp), indent=0).encode())


def read_series(project: Project) -> list[str]:
    """Names of the patches, in order."""
    lines = project.patch_file("series").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def read_patch(project: Project, name: str) -> bytes:
    try:
        return project.patch_file(name).read_bytes()
    except OSError as error:
        raise SourceError(
            f"patches/series names {name}, which cannot be read: {error}\n"
            "Add the file or take its line out of patches/series."
        ) from error


def wanted(path: str, include: Sequence[str]) -> bool:
    """Whether a path of the upstream tree belongs into ours.

    Each pattern is matched folder by folder; one that ends at a folder takes all below it.
    """
    parts = PurePosixPath(path).parts
    for pattern in include:
        heads = PurePosixPath(pattern).parts
        if len(heads) <= len(parts) and all(map(fnmatchcase, parts, heads)):
            return True
    return False


def fetch(project: Project, lock: Lock) -> Path:
    """Returns the verified sdist, downloading it by package name through pip if need be.

    Raises:
        SourceError: pip or the network failed, or the file is not the pinned one.
    """
    sdist = project.cache / lock.sdist_name
    if not sdist.exists():
        print(f"fetching {lock.package}=={lock.version} (sdist) through pip", flush=True)
        project.cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=project.cache) as folder:
            _pip_download(lock, Path(folder), sdist)
            (Path(folder) / lock.sdist_name).replace(sdist)
    found = sha256(sdist.read_bytes())
    if found != lock.sha256:
        raise SourceError(
            f"{sdist} is not the pinned file.\n"
            f"  found  sha256 {found}\n  needed sha256 {lock.sha256}\n"
            f"Remove it and fetch again: rm '{sdist}' && {SELF} fetch"
        )
    return sdist


def _pip_download(lock: Lock, folder: Path, sdist: Path) -> None:
    requirement = folder / "requirements.txt"
    requirement.write_text(f"{lock.package}=={lock.version} --hash=sha256:{lock.sha256}\n")
    options = ["--no-deps", "--no-binary", lock.package, "--require-hashes", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options]
    run = subprocess.run(
        [*command, "-r", str(requirement), "-d", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if run.returncode or not (folder / lock.sdist_name).exists():
        raise SourceError(
            f"pip did not deliver {lock.sdist_name} (exit status {run.returncode}):\n"
            f"{run.stdout.strip()[-2000:]}\n"
            f"Needed: pip for {sys.executable} and a package index that has the sdist.\n"
            f"Without a network put {lock.sdist_name} (sha256 {lock.sha256}) at {sdist}, or build "
            "a local llama.cpp tree: JMM_LLAMA_CPP_DIR=/path/to/llama.cpp pip install ."
        )


def read_sdist(sdist: Path, lock: Lock) -> Tree:
    """Reads the wanted files of the pristine tree and checks its hash."""
    prefix = f"{lock.package}-{lock.version}/{lock.member}/"
    tree: Tree = {}
    with tarfile.open(sdist) as archive:
        for member in archive:
            path = member.name.removeprefix(prefix)
            if path == member.name or not member.isfile() or not wanted(path, lock.include):
                continue
            if ".." in PurePosixPath(path).parts:
                raise SourceError(f"{sdist} holds the unsafe path {member.name}; do not use it")
            source = archive.extractfile(member)
            tree[path] = source.read() if source else b""
    return tree


def read_tree(folder: Path) -> Tree:
    """Reads a tree from disk, leaving out the stamp and Python's caches."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != STAMP and "__pycache__" not in path.parts
    }


def apply_patches(project: Project, tree: Tree, names: Sequence[str]) -> Tree:
    """Applies the named patches one after the other.

    Raises:
        SourceError: One is missing or does not apply.
    """
    for number, name in enumerate(names):
        try:
            tree = unified_diff.apply(tree, read_patch(project, name))
        except unified_diff.PatchError as error:
            before = names[number - 1] if number else "none"
            raise SourceError(
                f"patches/{name} does not apply to {'the tree patched up to ' + before}: {error}\n"
                f"Mend it: {SELF} patch --until {before}, edit extern/llama.cpp, "
                f"{SELF} refresh {name}"
            ) from error
    return tree


def pristine_tree(project: Project, lock: Lock, *, trust: bool = False) -> Tree:
    """Reads the pristine tree from the sdist; ``trust`` skips the check of the tree hash."""
    sdist = fetch(project, lock)
    tree = read_sdist(sdist, lock)
    if not trust:
        _check_hash("The pristine tree", tree_hash(tree), lock.pristine_tree)
    return tree


def _check_hash(what: str, found: str, needed: str) -> None:
    if found != needed:
        raise SourceError(
            f"{what} is not the one in extern/llama.cpp.lock.\n"
            f"  found  {found}\n  needed {needed}\n"
            f"If you changed the pin or a patch on purpose, record it: {SELF} refresh\n"
            "Otherwise restore both: git checkout -- extern/llama.cpp.lock patches"
        )


def patch(project: Project, *, until: str | None = None, force: bool = False) -> str:
    """Brings the tree to the state of the series and returns what was done, in words.

    Hand edits survive where the series changed nothing in their file.

    Args:
        project: Where things lie.
        until: Stop behind this patch ("none": before the first), to edit it.
        force: Throw hand edits away.

    Raises:
        SourceError: A download, a patch or a hash failed, or hand edits would be lost.
    """
    lock, stamp = load_lock(project), load_stamp(project)
    names = _names_until(read_series(project), until)
    patches = {name: sha256(read_patch(project, name)) for name in names}
    current = (stamp.sdist, list(stamp.patches.items())) == (lock.sha256, list(patches.items()))
    if current and not force and (until is not None or _stamped_hash(stamp) == lock.patched_tree):
        return "nothing to do"
    target = apply_patches(project, pristine_tree(project, lock), names)
    if until is None:
        _check_hash("The patched tree", tree_hash(target), lock.patched_tree)
    found = read_tree(project.tree) if project.tree.exists() else {}
    kept = set() if force else _edits_to_keep(stamp, found, target)
    written = _write_tree(project.tree, found, target, kept)
    save_stamp(project, Stamp(lock.sha256, patches, _hashes(target)))
    return f"{written} files written, {len(names)} patches applied"


def _stamped_hash(stamp: Stamp) -> str:
    digest = hashlib.sha256()
    for path in sorted(stamp.files):
        digest.update(f"{path}\0{stamp.files[path]}\n".encode())
    return digest.hexdigest()


def _hashes(tree: Tree) -> dict[str, str]:
    return {path: sha256(data) for path, data in sorted(tree.items())}


def _names_until(series: list[str], until: str | None) -> list[str]:
    if until is None:
        return series
    if until == "none":
        return []
    if until not in series:
        known = ", ".join(series) or "nothing"
        raise SourceError(f"patches/series has no {until}. It has: {known}")
    return series[: series.index(until) + 1]


def edited_files(stamp: Stamp, found: Tree) -> set[str]:
    """Files that differ from what the stamp says was written, deleted ones included."""
    paths = stamp.files.keys() | found.keys()
    hashes = _hashes(found)
    return {path for path in paths if stamp.files.get(path) != hashes.get(path)}


def _edits_to_keep(stamp: Stamp, found: Tree, target: Tree) -> set[str]:
    edited = {p for p in edited_files(stamp, found) if found.get(p) != target.get(p)}
    hashes = _hashes({path: target[path] for path in edited if path in target})
    lost = sorted(p for p in edited if stamp.files.get(p) != hashes.get(p))
    if lost:
        raise SourceError(
            f"{len(lost)} files of extern/llama.cpp hold edits that are in no patch and would be "
            f"overwritten:\n  " + "\n  ".join(lost[:10]) + "\n"
            f"Keep them: {SELF} refresh NNNN-purpose.patch (before other patches change)\n"
            f"Discard them: {SELF} patch --force"
        )
    return edited


def _write_tree(folder: Path, found: Tree, target: Tree, kept: set[str]) -> int:
    changed = {p for p in found.keys() | target.keys() if found.get(p) != target.get(p)} - kept
    for path in sorted(changed):
        if path in target:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            _replace_file(folder / path, target[path])
        else:
            (folder / path).unlink()
    return len(changed)


def _replace_file(path: Path, data: bytes) -> None:
    draft = path.with_name(path.name + ".new")
    draft.write_bytes(data)
    draft.replace(path)


def check(project: Project) -> str:
    """Compares the tree on disk with the lock and the series.

    Raises:
        SourceError: It is missing, edited by hand, or made from another sdist or series.
    """
    lock, stamp = load_lock(project), load_stamp(project)
    if not stamp.files:
        raise SourceError(f"{project.tree} was not written by this tool. Next: {SELF} patch")
    edited = sorted(edited_files(stamp, read_tree(project.tree)))
    if edited:
        raise SourceError(
            f"{len(edited)} files of extern/llama.cpp are edited by hand:\n  "
            + "\n  ".join(edited[:10])
            + f"\nKeep them: {SELF} refresh NNNN-purpose.patch\nDiscard them: {SELF} patch --force"
        )
    patches = {name: sha256(read_patch(project, name)) for name in read_series(project)}
    if stamp.sdist != lock.sha256 or list(stamp.patches.items()) != list(patches.items()):
        raise SourceError(
            "extern/llama.cpp was made from another sdist or series than the present one.\n"
            f"  found  {', '.join(stamp.patches) or 'no patches'}\n"
            f"  needed {', '.join(patches) or 'no patches'}\nNext: {SELF} patch"
        )
    _check_hash("The patched tree", _stamped_hash(stamp), lock.patched_tree)
    return f"llama.cpp {lock.llama_cpp_version} with {len(patches)} patches, as the lock says"


def record(project: Project) -> str:
    """Records the hashes of the pristine and the patched tree in the lock."""
    lock = load_lock(project)
    pristine = pristine_tree(project, lock, trust=True)
    patched = apply_patches(project, pristine, read_series(project))
    hashes = replace(lock, pristine_tree=tree_hash(pristine), patched_tree=tree_hash(patched))
    if hashes == lock:
        return "the lock is up to date"
    save_lock(project, hashes)
    return f"recorded in extern/llama.cpp.lock; next: {SELF} patch"


def refresh(project: Project, name: str) -> str:
    """Writes the tree's edits, on top of the patches before ``name``, to ``patches/name``.

    A new name is appended to the series. Prose before the first diff of the patch stays.

    Raises:
        SourceError: The tree is not patched up to just this patch, nothing differs, or a later
            patch no longer applies.
    """
    lock, stamp, series = load_lock(project), load_stamp(project), read_series(project)
    before = series[: series.index(name)] if name in series else series
    after = series[len(before) + 1 :]
    _require_patched_up_to(project, lock, stamp, before, name)
    base = apply_patches(project, pristine_tree(project, lock), before)
    edited = read_tree(project.tree)
    diff = unified_diff.render(base, edited)
    if not diff:
        raise SourceError(f"{project.tree} has no edits for {name}; nothing is written")
    file = project.patch_file(name)
    prose = unified_diff.split_preamble(file.read_bytes())[0] if file.exists() else b""
    _replace_file(file, prose + diff)
    if name not in series:
        with project.patch_file("series").open("a") as file_of_series:
            file_of_series.write(f"{name}\n")
    patches = {**{n: stamp.patches[n] for n in before}, name: sha256(prose + diff)}
    save_stamp(project, Stamp(lock.sha256, patches, _hashes(edited)))
    patched = apply_patches(project, edited, after)
    save_lock(project, replace(lock, patched_tree=tree_hash(patched)))
    again = f"; now apply the rest: {SELF} patch" if after else ""
    why = "" if prose else "; add its purpose above the first diff and a row to patches/README.md"
    return f"patches/{name} written{why}{again}"


def _require_patched_up_to(
    project: Project, lock: Lock, stamp: Stamp, before: list[str], name: str
) -> None:
    applied = list(stamp.patches)
    last = before[-1] if before else "none"
    changed = [n for n in before if stamp.patches.get(n) != sha256(read_patch(project, n))]
    if stamp.sdist != lock.sha256 or applied not in (before, [*before, name]) or changed:
        raise SourceError(
            f"{project.tree} is not at the state that {name} starts from.\n"
            f"  found  {', '.join(applied) or 'no patches'}\n"
            f"  needed {', '.join(before) or 'no patches'}, as in patches/, then at most {name}\n"
            f"Next: {SELF} patch --until {name if name in applied else last}, "
            "which keeps edits in files that it need not change"
        )


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tree", type=Path, help="work on this tree, not on extern/llama.cpp")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="download the pinned sdist and verify it")
    patching = commands.add_parser("patch", help="write the patched tree")
    patching.add_argument("--until", metavar="NAME", help="stop behind this patch, or at 'none'")
    patching.add_argument("--force", action="store_true", help="throw hand edits away")
    commands.add_parser("check", help="compare the tree with lock and series")
    refreshing = commands.add_parser("refresh", help="write edits to a patch, or record hashes")
    refreshing.add_argument("name", nargs="?", help="NNNN-purpose.patch")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    """Runs one command; returns the exit status."""
    options = parse_arguments(arguments)
    root = root or Path(__file__).resolve().parents[1]
    project = Project(root, (options.tree or root / "extern" / "llama.cpp").resolve())
    try:
        if options.command == "fetch":
            outcome = f"{fetch(project, load_lock(project))} is verified"
        elif options.command == "patch":
            outcome = patch(project, until=options.until, force=options.force)
        elif options.command == "check":
            outcome = check(project)
        else:
            outcome = refresh(project, options.name) if options.name else record(project)
    except SourceError as error:
        print(f"llama_source: {error}", file=sys.stderr)
        return 1
    print(f"llama_source: {outcome}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
