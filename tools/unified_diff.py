"""Unified diffs, strictly: every context line must match, nothing is guessed.

Written here because a build must need neither ``git`` nor ``patch``: containers often lack
both, and ``git apply`` inside a git-ignored folder does nothing and still exits 0.

A hunk may lie at another line than its header says (an earlier patch moved it), as long as
its old text occurs exactly once after the previous hunk. All text is bytes, so that no
encoding or line ending is changed.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field

CONTEXT_LINES = 3
NO_NEWLINE = b"\\ No newline at end of file\n"
HUNK_HEADER = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
UNSUPPORTED = (b"rename from ", b"copy from ", b"GIT binary patch", b"Binary files ")

Tree = dict[str, bytes]


class PatchError(Exception):
    """A patch is malformed or does not match the text it is meant for."""


@dataclass
class Hunk:
    """One change: the lines ``old``, expected at line ``start`` (from 1), become ``new``."""

    start: int
    old: list[bytes] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)


@dataclass
class FileDiff:
    """The changes of one file; a path of None stands for ``/dev/null``."""

    old_path: str | None
    new_path: str | None
    hunks: list[Hunk] = field(default_factory=list)


def split_lines(text: bytes) -> list[bytes]:
    r"""Splits at ``\n`` alone (``bytes.splitlines`` would split at ``\r`` too)."""
    lines = text.split(b"\n")
    tail = lines.pop()
    return [line + b"\n" for line in lines] + ([tail] if tail else [])


def split_preamble(patch: bytes) -> tuple[bytes, bytes]:
    """Splits a patch into the prose before the first diff and the rest."""
    match = re.search(rb"^(diff --git |--- )", patch, re.MULTILINE)
    return (patch[: match.start()], patch[match.start() :]) if match else (patch, b"")


def parse(patch: bytes) -> list[FileDiff]:
    """Reads a patch.

    Raises:
        PatchError: It has no diff, or one that is malformed, binary, a rename or a copy.
    """
    lines = split_lines(split_preamble(patch)[1])
    diffs: list[FileDiff] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(UNSUPPORTED):
            raise PatchError(f"unsupported diff: {line.decode(errors='replace').strip()}")
        if line.startswith(b"--- ") and at + 1 < len(lines) and lines[at + 1].startswith(b"+++ "):
            diffs.append(FileDiff(_path(line), _path(lines[at + 1])))
            at += 2
        elif line.startswith(b"@@ "):
            if not diffs:
                raise PatchError("a hunk comes before any file header")
            hunk, at = _parse_hunk(lines, at)
            diffs[-1].hunks.append(hunk)
        elif line[:1] in (b"+", b"-", b" "):
            raise PatchError(f"stray line {line.decode(errors='replace').rstrip()!r}")
        else:
            at += 1
    if not diffs or not all(diff.hunks for diff in diffs):
        raise PatchError("it holds no diff" if not diffs else "a file header has no hunk")
    return diffs


def _path(header: bytes) -> str | None:
    name = header[4:].split(b"\t")[0].strip().decode()
    return None if name == "/dev/null" else name.split("/", 1)[-1]


def _parse_hunk(lines: list[bytes], at: int) -> tuple[Hunk, int]:
    header = lines[at].decode(errors="replace").strip()
    match = HUNK_HEADER.match(lines[at])
    if not match:
        raise PatchError(f"malformed hunk header {header!r}")
    n_old, n_new = int(match[2] or 1), int(match[4] or 1)
    # An insertion's header names the line before it: "-7,0" inserts behind line 7.
    hunk = Hunk(int(match[1]) + (1 if n_old == 0 else 0))
    at += 1
    while at < len(lines) and (len(hunk.old) < n_old or len(hunk.new) < n_new):
        sign, text = lines[at][:1], lines[at][1:]
        if lines[at] == b"\n":
            sign, text = b" ", b"\n"
        if at + 1 < len(lines) and lines[at + 1].startswith(b"\\"):
            text = text.removesuffix(b"\n")
        if sign in (b" ", b"-"):
            hunk.old.append(text)
        if sign in (b" ", b"+"):
            hunk.new.append(text)
        if sign not in (b" ", b"-", b"+", b"\\"):
            break
        at += 1
    if at < len(lines) and lines[at].startswith(b"\\"):
        at += 1
    if (len(hunk.old), len(hunk.new)) != (n_old, n_new):
        raise PatchError(f"hunk {header!r} is cut short or longer than its header says")
    return hunk, at


def apply(tree: Tree, patch: bytes) -> Tree:
    """Applies a patch to a tree and returns the new tree; the given one stays as it was.

    Args:
        tree: Contents by relative path with forward slashes.
        patch: A unified diff with ``a/`` and ``b/`` prefixes.

    Raises:
        PatchError: The patch is malformed, or a hunk does not match exactly one place.
    """
    result = dict(tree)
    for diff in parse(patch):
        if diff.old_path is None:
            if diff.new_path is None or diff.new_path in result:
                raise PatchError(f"{diff.new_path} exists already")
            text = b""
        elif diff.old_path not in result:
            raise PatchError(f"{diff.old_path} does not exist")
        else:
            text = result.pop(diff.old_path)
        text = _apply_hunks(text, diff)
        if diff.new_path is not None:
            result[diff.new_path] = text
        elif text:
            raise PatchError(f"{diff.old_path} is deleted, but holds text that the patch lacks")
    return result


def _apply_hunks(text: bytes, diff: FileDiff) -> bytes:
    lines = split_lines(text)
    result: list[bytes] = []
    done = shift = 0
    for number, hunk in enumerate(diff.hunks, 1):
        at = _find(lines, hunk, done, hunk.start - 1 + shift)
        if at is None:
            expected = hunk.start - 1 + shift
            raise PatchError(
                f"hunk {number} (line {hunk.start}) does not match {diff.old_path}"
                + _first_difference(lines[max(expected, 0) :], hunk.old)
            )
        shift = at - (hunk.start - 1)
        result += lines[done:at] + hunk.new
        done = at + len(hunk.old)
    return b"".join(result + lines[done:])


def _find(lines: list[bytes], hunk: Hunk, lowest: int, expected: int) -> int | None:
    size = len(hunk.old)
    if expected >= lowest and lines[expected : expected + size] == hunk.old:
        return expected
    if not size:
        return None
    places = [
        at for at in range(lowest, len(lines) - size + 1) if lines[at : at + size] == hunk.old
    ]
    return places[0] if len(places) == 1 else None


def _first_difference(found: list[bytes], wanted: list[bytes]) -> str:
    for index, want in enumerate(wanted):
        got = found[index] if index < len(found) else b"(end of file)"
        if got != want:
            needed, seen = want.decode(errors="replace"), got.decode(errors="replace")
            return f": needed {needed!r}, found {seen!r}"
    return ": its text occurs more than once"


def render(old: Tree, new: Tree) -> bytes:
    """Writes the difference of two trees as a git-style patch, files in order of path.

    Example:
        >>> print(render({"a.c": b"1\\n"}, {"a.c": b"2\\n"}).decode(), end="")
        diff --git a/a.c b/a.c
        --- a/a.c
        +++ b/a.c
        @@ -1 +1 @@
        -1
        +2
    """
    parts: list[bytes] = []
    for path in sorted(old.keys() | new.keys()):
        before, after = old.get(path), new.get(path)
        if before != after:
            parts.append(_render_file(path, before, after))
    return b"".join(parts)


def _render_file(path: str, before: bytes | None, after: bytes | None) -> bytes:
    if b"\0" in (before or b"") + (after or b""):
        raise PatchError(f"{path} is binary")
    name = path.encode()
    lines = [b"diff --git a/%s b/%s\n" % (name, name)]
    if before is None:
        lines.append(b"new file mode 100644\n")
    if after is None:
        lines.append(b"deleted file mode 100644\n")
    lines.append(b"--- /dev/null\n" if before is None else b"--- a/%s\n" % name)
    lines.append(b"+++ /dev/null\n" if after is None else b"+++ b/%s\n" % name)
    old, new = split_lines(before or b""), split_lines(after or b"")
    for group in _groups(old, new):
        lines.append(_hunk_header(group))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [_mark(b" ", line) for line in old[i1:i2]]
            else:
                lines += [_mark(b"-", line) for line in old[i1:i2]]
                lines += [_mark(b"+", line) for line in new[j1:j2]]
    return b"".join(lines)


Opcode = tuple[str, int, int, int, int]


def _groups(old: list[bytes], new: list[bytes]) -> list[list[Opcode]]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [list(group) for group in matcher.get_grouped_opcodes(CONTEXT_LINES)]


def _hunk_header(group: list[Opcode]) -> bytes:
    old = _range(group[0][1], group[-1][2])
    new = _range(group[0][3], group[-1][4])
    return b"@@ -%s +%s @@\n" % (old, new)


def _range(start: int, stop: int) -> bytes:
    size = stop - start
    if size == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if size else start, size)


def _mark(sign: bytes, line: bytes) -> bytes:
    return sign + line if line.endswith(b"\n") else sign + line + b"\n" + NO_NEWLINE
