"""Makes the CUDA flavour of a wheel that was built with ``JMM_CUDA=ON``.

    python tools/cuda_wheel.py dist/jmm-0.1.0-cp311-cp311-linux_x86_64.whl

writes ``jmm-0.1.0+cu13-...whl`` beside it: the local version tells the flavour, and the metadata
asks for the package of cuBLAS, which the module finds by a path relative to itself. Nothing else
of the wheel changes.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path

FLAVOUR = "cu13"
LIBRARY = b"libcublas.so.13"
REQUIREMENT = "nvidia-cublas>=13,<14"


class WheelError(Exception):
    """The wheel cannot have the flavour."""


def flavoured(wheel: Path) -> Path:
    """Writes the wheel of the flavour, and returns its path.

    Raises:
        WheelError: The file is no wheel, has the flavour, or was not built for CUDA.
    """
    match = re.fullmatch(r"([^-]+)-([^-]+)-(.+)\.whl", wheel.name)
    if match is None or "+" in match[2]:
        raise WheelError(f"{wheel.name}: the name of a wheel without a local version is needed")
    name, version, tags = match.groups()
    with zipfile.ZipFile(wheel) as source:
        members = {info: source.read(info) for info in source.infolist() if not info.is_dir()}
    modules = [data for info, data in members.items() if re.search(r"/_core\b", info.filename)]
    if not any(LIBRARY in data for data in modules):
        raise WheelError(f"{wheel.name}: its module does not ask for {LIBRARY.decode()}")
    old, new = (f"{name}-{text}.dist-info/" for text in (version, f"{version}+{FLAVOUR}"))
    target = wheel.with_name(f"{name}-{version}+{FLAVOUR}-{tags}.whl")
    record = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for info, data in members.items():
            if info.filename == f"{old}RECORD":
                continue
            if info.filename == f"{old}METADATA":
                data = _metadata(data.decode(), version).encode()
            if info.filename.startswith(old):
                info.filename = new + info.filename.removeprefix(old)
            out.writestr(info, data, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{info.filename},sha256={digest},{len(data)}\n")
        out.writestr(f"{new}RECORD", "".join([*record, f"{new}RECORD,,\n"]))
    return target


def _metadata(text: str, version: str) -> str:
    head, separator, body = text.partition("\n\n")
    changed, count = re.subn(
        rf"^Version: {re.escape(version)}$",
        f"Version: {version}+{FLAVOUR}\nRequires-Dist: {REQUIREMENT}",
        head,
        flags=re.MULTILINE,
    )
    if count != 1:
        raise WheelError(f"its metadata names another version than {version}")
    return changed + separator + body


def main() -> int:
    """Returns 1 for a wheel that cannot have the flavour."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    try:
        print(flavoured(parser.parse_args().wheel))
    except WheelError as error:
        print(f"cuda_wheel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
