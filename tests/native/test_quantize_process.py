"""What a quantizing process leaves behind, prints, and takes of the memory."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from jmm.cli import main
from subprocess_case import run
from support import gguf_writer, sanitizer, tiny
from support.tiny import TinyModel

Files = Callable[..., tuple[Path, Path]]
Capture = pytest.CaptureFixture[str]

# Pieces of one row, and `act` at the hundredth of them.
AT_A_PIECE = """
import itertools
from jmm.quantizer import writer
writer.PIECE = 1
count = itertools.count(1)
convert = writer._convert

def convert_and_act(*args):
    if next(count) == 100:
        act()
    return convert(*args)

writer._convert = convert_and_act

def attempt(**options):
    return raised(lambda: quantize_model(words[0], words[1], "q8_0", n_threads=2, **options))

"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("act", "outcome"),
    [
        ("os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt"),
        ("raise OSError(28, 'No space left on device')", "OSError"),
        ("raise MemoryError", "OutOfMemoryError"),
    ],
)
def test_nothing_is_left_of_a_run_that_failed(
    act: str, outcome: str, tiny_files: Files, tmp_path: Path
) -> None:
    target = tmp_path / "out.gguf"
    lines = run(
        AT_A_PIECE
        + f"""
def act():
    {act}

print(attempt(), next(count) >= 100, os.listdir(words[2]))
open(words[1], "w").write("before")
count = itertools.count(1)
print(attempt(overwrite=True), os.listdir(words[2]), open(words[1]).read())
print(attempt(overwrite=True), os.listdir(words[2]))
_core.read_gguf(words[1])
""",
        tiny_files("qwen25_small")[1],
        target,
        tmp_path,
    )
    assert lines == [
        f"{outcome} True []",
        f"{outcome} ['out.gguf'] before",
        "nothing ['out.gguf']",
    ]


def test_signals_one_after_the_other(tiny_files: Files, tmp_path: Path) -> None:
    """Those that come while the pieces in work are waited for do not let them outlive the call."""
    lines = run(
        AT_A_PIECE
        + """
def act():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(5):
        time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)

before = n_tasks()
print(attempt(), os.listdir(words[2]), n_tasks() - before)
""",
        tiny_files("qwen25_small")[1],
        tmp_path / "out.gguf",
        tmp_path,
    )
    assert lines == ["KeyboardInterrupt [] 0"]


def test_a_full_disk_is_told_with_the_name(tiny_files: Files, tmp_path: Path) -> None:
    lines = run(
        AT_A_PIECE
        + """
import resource
act = lambda: None
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    quantize_model(words[0], words[1], "q8_0")
except OSError as error:
    print(type(error).__name__, error.filename == words[1], os.listdir(words[2]))
""",
        tiny_files("qwen25_small")[1],
        tmp_path / "out.gguf",
        tmp_path,
    )
    assert lines == ["OSError True []"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_the_command_leaves_nothing_after(name: str, tiny_files: Files, tmp_path: Path) -> None:
    run(
        AT_A_PIECE
        + f"""
from jmm import cli
signal.signal(signal.{name}, signal.SIG_DFL)  # whatever is ignored where the tests run
act = lambda: os.kill(os.getpid(), signal.{name})
cli.main(["quantize", words[0], words[1], "--type", "q8_0"])
""",
        tiny_files("qwen25_small")[1],
        tmp_path / "out.gguf",
        exit_code=128 + getattr(signal, name),
    )
    assert names(tmp_path) == []


def test_nohup_holds_for_the_command(tiny_files: Files, tmp_path: Path) -> None:
    run(
        AT_A_PIECE
        + """
from jmm import cli
signal.signal(signal.SIGHUP, signal.SIG_IGN)
act = lambda: os.kill(os.getpid(), signal.SIGHUP)
cli.main(["quantize", words[0], words[1], "--type", "q8_0", "--quiet"])
""",
        tiny_files("qwen25_small")[1],
        tmp_path / "out.gguf",
    )
    assert names(tmp_path) == ["out.gguf"]


def test_a_killed_run_leaves_no_file_of_that_name(tiny_files: Files, tmp_path: Path) -> None:
    run(
        AT_A_PIECE
        + """
act = lambda: os.kill(os.getpid(), signal.SIGKILL)
attempt()
""",
        tiny_files("qwen25_small")[1],
        tmp_path / "out.gguf",
        exit_code=-9,
    )
    (left,) = names(tmp_path)
    assert left.startswith("out.gguf.")
    assert left.endswith(".part")


@pytest.mark.skipif(sys.platform != "linux", reason="measured as Linux does it")
@sanitizer.measures_memory
def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    model = TinyModel(
        name="long",
        family="qwen2_5_vl",
        seed=1,
        hidden=256,
        ffn=16384,
        layers=2,
        heads=4,
        kv_heads=1,
        mrope_section=(8, 12, 12),
        v_hidden=32,
        v_ffn=32,
        v_layers=1,
        v_heads=1,
    )
    source = gguf_writer.write_text(model, tiny.weights(model), tmp_path / "in.gguf")
    assert source.stat().st_size > 100e6
    lines = run(
        """
import resource

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

quantize_model(words[1], words[2], "q4_k_m", overwrite=True)  # what is loaded once
before = peak()
quantize_model(words[0], words[2], "q4_k_m", n_threads=2, overwrite=True)
print(peak() - before < 12e6 or peak() - before)
""",
        source,
        _small(tmp_path),
        tmp_path / "out.gguf",
    )
    assert lines == ["True"]


def _small(folder: Path) -> Path:
    from support.wide import WIDE

    return gguf_writer.write_text(WIDE["wide2"], tiny.weights(WIDE["wide2"]), folder / "small.gguf")


# --- the command ---


def quantize(*words: object) -> int:
    return main(["quantize", *map(str, words)])


def test_command(tiny_files: Files, tmp_path: Path, capsys: Capture) -> None:
    source, target = tiny_files("qwen2_small")[1], tmp_path / "out.gguf"
    assert quantize(source, target, "--type", "q8_0", "--threads", 2) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"{target}: 0.")
    assert "q8_0" in out
    kinds = [tensor.tensor_type.name for tensor in gguf.GGUFReader(target).tensors]
    assert f"{kinds.count('Q8_0')} q8_0" in out
    assert f"{kinds.count('F32')} f32" in out
    assert "padded" not in out

    assert quantize(source, target, "--type", "q4_0") == 1
    assert "it exists already" in capsys.readouterr().err
    assert quantize(source, target, "--type", "q4_0", "--overwrite") == 0
    again = tmp_path / "again.gguf"
    assert quantize(target, again, "--type", "q8_0") == 1
    assert "--allow-requantize" in capsys.readouterr().err
    assert quantize(target, again, "--type", "q8_0", "--allow-requantize") == 0
    with pytest.raises(SystemExit):
        quantize(source, target, "--type", "q9")
    assert "iq4_xs" in capsys.readouterr().err


def test_command_tells_of_padding(tiny_files: Files, tmp_path: Path, capsys: Capture) -> None:
    source = tiny_files("qwen25_head80")[1]
    assert quantize(source, tmp_path / "out.gguf", "--type", "q8_0") == 0
    assert "padded with zeros from 108 to 128" in capsys.readouterr().out


def test_command_draws_a_bar(
    tiny_files: Files, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tiny_files("qwen25_small")[1]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert quantize(source, tmp_path / "out.gguf", "--type", "q8_0") == 0
    assert "100%" in capsys.readouterr().err
