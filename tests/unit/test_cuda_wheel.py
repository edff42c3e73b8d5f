"""tools/cuda_wheel.py: the flavour's names, metadata and hashes, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import cuda_wheel  # noqa: E402

packaging_metadata = pytest.importorskip("packaging.metadata", reason="pip install packaging")

METADATA = "Metadata-Version: 2.2\nName: jmm\nVersion: 0.1.0\nRequires-Dist: numpy\n\nText.\n"

WHEEL = "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: false\nTag: py3-none-any\n"


def write(folder: Path, name: str, module: bytes, metadata: str = METADATA) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("jmm/__init__.py", "")
        out.writestr("jmm/_core.cpython-311-x86_64-linux-gnu.so", module)
        out.writestr("jmm-0.1.0.dist-info/METADATA", metadata)
        out.writestr("jmm-0.1.0.dist-info/WHEEL", WHEEL)
        out.writestr("jmm-0.1.0.dist-info/RECORD", "stale")
    return path


def test_flavour(tmp_path: Path) -> None:
    module = b"\x7fELF libcublas.so.13"
    plain = write(tmp_path, "jmm-0.1.0-cp311-cp311-linux_x86_64.whl", module)
    made = cuda_wheel.flavoured(plain)
    assert made.name == "jmm-0.1.0+cu13-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(made) as wheel:
        names = wheel.namelist()
        assert all(not name.startswith("jmm-0.1.0.dist-info/") for name in names)
        raw, unknown = packaging_metadata.parse_email(
            wheel.read("jmm-0.1.0+cu13.dist-info/METADATA")
        )
        record = wheel.read("jmm-0.1.0+cu13.dist-info/RECORD").decode().splitlines()
    assert not unknown
    assert raw["version"] == "0.1.0+cu13"
    assert sorted(raw["requires_dist"]) == ["numpy", "nvidia-cublas>=13,<14"]
    assert raw["description"] == "Text.\n"
    assert sorted(line.split(",")[0] for line in record) == sorted(names)


def test_pip_installs_it(tmp_path: Path) -> None:
    """pip checks names and versions against each other."""
    pytest.importorskip("pip", reason="there is no pip")
    plain = write(tmp_path, "jmm-0.1.0-py3-none-any.whl", b"libcublas.so.13")
    made = cuda_wheel.flavoured(plain)
    target = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(made)], check=True)
    assert (target / "jmm-0.1.0+cu13.dist-info" / "METADATA").is_file()


@pytest.mark.parametrize(
    ("name", "module", "metadata", "message"),
    [
        ("jmm-0.1.0-py3-none-any.whl", b"no GPU", METADATA, "libcublas.so.13"),
        ("jmm-0.1.0+cu13-py3-none-any.whl", b"libcublas.so.13", METADATA, "local version"),
        ("jmm.zip", b"libcublas.so.13", METADATA, "name of a wheel"),
        ("jmm-0.2.0-py3-none-any.whl", b"libcublas.so.13", "Version: 0.1.0\n", "names another"),
    ],
)
def test_refused(tmp_path: Path, name: str, module: bytes, metadata: str, message: str) -> None:
    plain = write(tmp_path, name, module, metadata)
    if name.startswith("jmm-0.2.0"):
        text = plain.read_bytes().replace(b"jmm-0.1.0.dist-info", b"jmm-0.2.0.dist-info")
        plain.write_bytes(text)
    with pytest.raises(cuda_wheel.WheelError, match=message):
        cuda_wheel.flavoured(plain)
