"""What is installed, and that our sdist builds without a network."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
LICENCES = {
    "LICENSE",
    "NOTICE",
    "extern/llama.cpp/LICENSE",
    "extern/llama.cpp/licenses/LICENSE-jsonhpp",
    "extern/llama.cpp/vendor/hash/rotate-bits/LICENSE.md",
    "extern/llama.cpp/vendor/hash/sha256/LICENSE",
    "extern/llama.cpp/vendor/hash/xxhash/LICENSE",
}
DEMO = {f"jmm/demo/{name}" for name in ("CARD.md", "demo-mmproj.gguf", "demo-text.gguf")}
# What the build compiles of llama.cpp, and whose licence is llama.cpp's own.
COMPILED = ("include", "src", "ggml/src", "tools/mtmd", "vendor")
OWN = ("The ggml authors", "Arm Limited")  # the latter's part is not built
HOLDER = re.compile(r"copyright(?: \(c\))? +([0-9]{4}[-0-9]*) +(.+?) *(?:<.*)?$", re.I | re.M)
BUILD_TOOLS = ("scikit_build_core", "Cython", "ninja", "pip")


def check_content(paths: Iterable[str]) -> None:
    """Only our package and its dist-info; licences and stubs are there, sources are not."""
    files = [PurePosixPath(path) for path in paths if not path.endswith("/")]
    tops = {path.parts[0] for path in files}
    assert {top for top in tops if top != "jmm" and not top.endswith(".dist-info")} == set()
    kinds = {path.suffix for path in files}
    assert kinds & {".a", ".h", ".hpp", ".cpp", ".c", ".pyx", ".pxd", ".pxi", ".cmake"} == set()
    names = {str(path) for path in files}
    assert {"jmm/__init__.py", "jmm/_core.pyi", "jmm/py.typed"} | DEMO <= names
    page = ("index.html", "script.js", "style.css")
    assert {f"jmm/browse/static/{name}" for name in page} <= names
    native = [p for p in files if p.suffix in (".so", ".pyd", ".dylib")]
    modules = {p.name.split(".")[0] for p in native}
    assert modules - {"_core_avx512"} == {"_core", "_cpu"}
    assert len(native) == len(modules)
    licences = {"/".join(path.parts[2:]) for path in files if path.parts[1:2] == ("licenses",)}
    assert licences >= LICENCES


def test_installed_files() -> None:
    distribution = importlib.metadata.distribution("jmm")
    files = [str(file) for file in distribution.files or ()]
    if any("editable" in name for name in files):
        pytest.skip("jmm is installed editable: its files lie in the checkout")
    caches = ("__pycache__", "bin/jmm", "Scripts/jmm")
    check_content(name for name in files if not any(part in name for part in caches))


def test_import_where_there_are_no_unix_modules() -> None:
    script = "import sys; sys.modules |= dict.fromkeys(('fcntl', 'resource', 'pwd')); import jmm"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_holder_of_a_copyright_is_named() -> None:
    tree = ROOT / "extern" / "llama.cpp"
    if not tree.exists():
        pytest.skip("the sources of llama.cpp are not here")
    licences = [ROOT / "LICENSE", ROOT / "NOTICE", *tree.glob("licenses/*")]
    licences += [*tree.glob("LICENSE"), *tree.glob("vendor/**/LICENSE*")]
    named = "\n".join(path.read_text("utf-8") for path in licences)
    holders: set[str] = set()
    for folder in COMPILED:
        for path in (tree / folder).rglob("*"):
            if path.suffix in (".c", ".cpp", ".h", ".hpp"):
                found = HOLDER.findall(path.read_text("utf-8", errors="replace"))
                holders |= {name.rstrip(". ") for _, name in found}
    assert len(holders) > 4
    unnamed = {name for name in holders if name not in named and not name.startswith(OWN)}
    assert unnamed == set()


def offline(*command: str | Path, cwd: Path) -> str:
    """Runs a command that must not reach a package index."""
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
def test_the_sdist_builds_and_works_without_a_network(tmp_path: Path) -> None:
    missing = [name for name in BUILD_TOOLS if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install '.[dev]'")
    make = "from scikit_build_core.build import build_sdist; build_sdist(%r)"
    offline(sys.executable, "-c", make % str(tmp_path), cwd=ROOT)
    (sdist,) = tmp_path.glob("jmm-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [name.split("/", 1)[-1] for name in archive.getnames()]
    assert "extern/llama.cpp/tools/mtmd/mtmd.cpp" in names
    assert set(names) >= LICENCES
    assert {f"src/{name}" for name in DEMO} <= set(names)
    foreign = (".git/", ".cache/", "build/", ".ci/", "shared/")
    assert [name for name in names if name.startswith(foreign)] == []

    pip = [sys.executable, "-m", "pip"]
    build = ["--no-index", "--no-deps", "--no-build-isolation", "-w", tmp_path, sdist]
    offline(*pip, "wheel", *build, cwd=tmp_path)
    (wheel,) = tmp_path.glob("jmm-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        check_content(archive.namelist())

    # The venv borrows numpy, Pillow and tqdm from here; jmm itself comes from the wheel.
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    offline(*pip, "--python", python, "install", "--no-index", "--no-deps", wheel, cwd=tmp_path)
    borrowed = {name: _parent(name) for name in ("numpy", "PIL", "tqdm")}
    script = (
        f"import sys; sys.path += {sorted(set(borrowed.values()))!r}\n"
        "import jmm; print(jmm.__file__); print(jmm.Embedder().encode_query('a').shape)"
    )
    answer = offline(python, "-c", script, cwd=tmp_path).splitlines()
    assert answer[0].startswith(str(tmp_path / "venv"))
    assert answer[1].startswith("(")


@pytest.mark.slow
def test_the_sdist_has_the_same_bytes_twice(tmp_path: Path) -> None:
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.skip("needs scikit_build_core: pip install '.[dev]'")
    make = "import os; from scikit_build_core.build import build_sdist; os.umask(%d); %s"
    archives = []
    for umask in (0o022, 0o077):
        folder = tmp_path / str(umask)
        folder.mkdir()
        offline(sys.executable, "-c", make % (umask, f"build_sdist({str(folder)!r})"), cwd=ROOT)
        (sdist,) = folder.glob("jmm-*.tar.gz")
        archives.append(hashlib.sha256(sdist.read_bytes()).hexdigest())
        (ROOT / "README.md").touch()
    assert archives[0] == archives[1]


def _parent(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parents[1])
