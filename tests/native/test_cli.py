"""``python -m jmm``: what is printed, what is written, and the exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import jmm
from jmm import Embedder, InputError
from jmm.cli import embed, main
from support import tiny

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{name}.png" for name in ("first", "second", "third")]
    for seed, path in enumerate(paths):
        Image.fromarray(tiny.picture(4, 6, seed=seed)).save(path)
    return paths


@pytest.fixture
def model(tiny_files: Callable[..., tuple[Path, Path]]) -> list[str]:
    text, mmproj = tiny_files("qwen25_small")
    return ["--model", str(text), "--mmproj", str(mmproj), "--threads", "1"]


def run(*words: object) -> int:
    return main([str(word) for word in words])


def test_ranking(model: list[str], pictures: list[Path], capsys: Capture) -> None:
    assert run("embed", *pictures, *model, "--query", "a red bus") == 0
    out, err = capsys.readouterr()
    with Embedder(model[1], model[3], n_threads=1) as embedder:
        scores = embedder.encode_images(pictures) @ embedder.encode_query("a red bus")
    order = np.argsort(-scores)
    assert len(set(np.round(scores, 4))) == 3
    wanted = [[f"{scores[index]:+.4f}", str(pictures[index])] for index in order]
    assert [line.split("  ", 1) for line in out.splitlines()] == wanted
    assert err == ""


def test_output(model: list[str], pictures: list[Path], tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "vectors.npz"
    assert run("embed", *pictures, *model, "--output", target, "--truncate-dim", 16) == 0
    assert capsys.readouterr() == ("", "")
    with np.load(target, allow_pickle=False) as file:
        assert set(file.files) == {"files", "vectors"}
        assert file["files"].tolist() == [str(path) for path in pictures]
        vectors = file["vectors"]
    assert vectors.dtype == np.float32
    with Embedder(model[1], model[3], n_threads=1) as embedder:
        np.testing.assert_allclose(
            vectors, embedder.encode_images(pictures, truncate_dim=16), atol=2e-6
        )


def test_neither_query_nor_output(model: list[str], pictures: list[Path], capsys: Capture) -> None:
    assert run("embed", *pictures, *model) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [str(path) for path in pictures]


def test_settings_reach_the_embedder(
    model: list[str], pictures: list[Path], tmp_path: Path
) -> None:
    target = tmp_path / "vectors.npz"
    words = ["--profile", "jina-embeddings-v4", "--max-pixels", "3136", "--output", target]
    assert run("embed", *pictures, *model, *words) == 0
    settings = {"profile": "jina-embeddings-v4", "max_pixels": 3136, "n_threads": 1}
    with Embedder(model[1], model[3], **settings) as embedder, np.load(target) as file:
        np.testing.assert_allclose(file["vectors"], embedder.encode_images(pictures), atol=2e-6)


def test_unreadable_among_good_ones(
    model: list[str], pictures: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    broken, missing = tmp_path / "broken.png", tmp_path / "missing.png"
    broken.write_bytes(pictures[0].read_bytes()[:40])
    files = [pictures[0], broken, missing, pictures[1]]
    target = tmp_path / "vectors.npz"
    assert run("embed", *files, *model, "--query", "a", "--output", target) == 1
    out, err = capsys.readouterr()
    ranked = {line.split("  ", 1)[1] for line in out.splitlines()}
    assert ranked == {str(pictures[0]), str(pictures[1])}
    reasons = err.splitlines()
    assert len(reasons) == 2
    assert reasons[0].startswith(f"jmm: item 1: {broken}: ")
    assert reasons[1].startswith(f"jmm: item 2: {missing}: cannot open the file (No such file")
    with np.load(target) as file:
        assert file["files"].tolist() == [str(path) for path in files]
        assert np.isnan(file["vectors"]).all(axis=1).tolist() == [False, True, True, False]


def test_nothing_readable(model: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert run("embed", tmp_path / "none.png", *model, "--query", "a") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "none.png: cannot open" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "none.gguf"], "none.gguf: there is no such file"),
        (["--mmproj", "none.gguf"], "mmproj is given without a model"),
        (["--task", "none"], "task is 'none'"),
        (["--profile", "none"], "profile is 'none'"),
        (["--truncate-dim", "257"], "truncate_dim is 257; allowed are 1 to 256"),
        (["--max-pixels", "5"], "max_pixels=5"),
        (["--query", ""], "jmm: the text is empty"),
        (["--output", "no/such/folder/out.npz"], "there is no folder no/such/folder"),
    ],
)
def test_bad_arguments(
    words: list[str],
    message: str,
    pictures: list[Path],
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("embed", pictures[0], *words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("jmm: ")
    assert message in err.splitlines()[-1]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["embed"],
        ["encode", "a.png"],
        ["info", "--x"],
        *(["embed", "a.png", "--threads", word] for word in ("two", "0", "-1", "513")),
        ["embed", "a.png", "--max-pixels", "0"],
        ["embed", "a.png", "--truncate-dim", "0"],
        ["quantize", "a", "b", "--type", "f16", "--threads", "0"],
        ["convert", "a", "b", "--max-pixels", "0"],
    ],
)
def test_wrong_usage(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*words)
    assert caught.value.code == 2
    assert "usage: jmm" in capsys.readouterr().err


def test_interrupted(
    pictures: list[Path], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(embed, "run", interrupt)
    assert run("embed", pictures[0]) == 130
    said = "jmm: interrupted; files are whole: run the same command again\n"
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize(
    "command",
    [
        "browse",
        "compare",
        "convert",
        "demo",
        "embed",
        "heatmap",
        "index",
        "info",
        "quantize",
        "search",
    ],
)
def test_every_command_has_json_and_quiet(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        run(command, "--help")
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "--json" in shown
    assert "--quiet" in shown


def test_json_of_a_ranking(model: list[str], pictures: list[Path], capsys: Capture) -> None:
    words = [*pictures[:2], "none.png", pictures[2], *model, "--query", "a red bus", "--json"]
    assert run("embed", *words) == 1
    found = json.loads(capsys.readouterr().out)
    with Embedder(model[1], model[3], n_threads=1) as embedder:
        scores = embedder.encode_images(pictures) @ embedder.encode_query("a red bus")
    order = np.argsort(-scores)
    assert [entry["file"] for entry in found["files"]] == [str(pictures[i]) for i in order]
    np.testing.assert_allclose(
        [entry["score"] for entry in found["files"]], scores[order], atol=1e-5
    )
    assert (found["failed"], found["dim"]) == (["none.png"], 64)


def test_json_of_vectors(
    model: list[str], pictures: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    assert run("embed", *pictures, *model, "--json") == 0
    found = json.loads(capsys.readouterr().out)["files"]
    with Embedder(model[1], model[3], n_threads=1) as embedder:
        wanted = embedder.encode_images(pictures)
    np.testing.assert_allclose([entry["vector"] for entry in found], wanted, atol=2e-6)
    assert run("embed", *pictures, *model, "--json", "--output", tmp_path / "v.npz") == 0
    found = json.loads(capsys.readouterr().out)["files"]
    assert found == [{"file": str(path)} for path in pictures]


def test_json_of_info(model: list[str], capsys: Capture) -> None:
    assert run("info", *model, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["mmproj"], found["dim"]) == (model[1], model[3], 64)


def test_json_of_quantize(model: list[str], tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out.gguf"
    assert run("quantize", model[1], out, "--type", "f16", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["path"] == str(out)
    assert found["n_bytes"] == out.stat().st_size
    assert sum(found["tensor_types"].values()) > 10
    assert run("quantize", model[1], out, "--type", "f16", "--quiet", "--overwrite") == 0
    assert capsys.readouterr() == ("", "")


def test_quiet_keeps_the_answer_and_the_errors(pictures: list[Path], capsys: Capture) -> None:
    words = ["embed", pictures[0], "none.png", "--query", "a", "--quiet", "--threads", 1]
    assert run(*words) == 1
    out, err = capsys.readouterr()
    assert out.endswith(f"  {pictures[0]}\n")
    assert err.startswith("jmm: item 1: none.png: ")
    assert len(err.splitlines()) == 1


def rows(out: str) -> dict[str, str]:
    """The rows that `jmm info` prints; lines that are indented belong to the row above."""
    lines = out.replace("\n  ", " ").splitlines()
    return {name: " ".join(words) for name, *words in map(str.split, lines)}


def test_info(model: list[str], capsys: Capture) -> None:
    assert run("info", *model, "--profile", "jina-embeddings-v4", "--task", "code") == 0
    out, err = capsys.readouterr()
    shown = rows(out)
    assert max(len(line) for line in out.splitlines() if ".gguf" not in line) <= 100
    assert shown["model"] == model[1]
    assert shown["mmproj"] == model[3]
    assert shown["profile"] == "jina-embeddings-v4"
    assert shown["profile_reason"] == "asked for by name"
    assert shown["tasks"] == "retrieval, text-matching, code"
    assert shown["task"] == "code"
    assert shown["dim"] == "64"
    assert shown["n_threads"] == "1"
    assert shown["llama_cpp"] == "b11549"
    assert ".patch" in shown["patches"]
    assert err == ""


def test_info_takes_the_model_by_place(model: list[str], capsys: Capture) -> None:
    assert run("info", model[1]) == 0
    shown = rows(capsys.readouterr().out)
    assert (shown["model"], shown["mmproj"]) == (model[1], "none")
    assert run("info", model[3]) == 1
    assert "this is a vision tower" in capsys.readouterr().err


def test_built_in_model_says_how_little_it_knows(pictures: list[Path]) -> None:
    odd = pictures[0].with_name(os.fsdecode(b"\xff.png"))
    pictures[0].rename(odd)
    env = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    words = [sys.executable, "-m", "jmm", "embed", odd, "none.png", "--query", "a"]
    done = subprocess.run(words, capture_output=True, check=False, env=env)
    assert done.returncode == 1
    assert done.stdout.endswith(os.fsencode(odd) + b"\n")
    assert len(done.stdout.splitlines()) == 1
    first, second = done.stderr.decode().splitlines()
    assert first.startswith("jmm: the built-in model is for trying out: it knows drawn shapes")
    assert second.startswith("jmm: item 1: none.png: ")


def test_info_of_a_converted_model(model: list[str], tmp_path: Path, capsys: Capture) -> None:
    for name, path in (("text.gguf", model[1]), ("mmproj.gguf", model[3])):
        (tmp_path / name).write_bytes(Path(path).read_bytes())
    manifest = {
        "format": 1,
        "model": "text.gguf",
        "mmproj": "mmproj.gguf",
        "profile": "jina-embeddings-v4",
        "min_pixels": 3136,
        "max_pixels": 7000,
    }
    (tmp_path / "jmm.json").write_text(json.dumps(manifest))
    assert run("info", tmp_path) == 0
    shown = rows(capsys.readouterr().out)
    assert shown["profile_reason"] == shown["pixels_reason"] == "named by jmm.json"
    assert shown["repo"] == shown["sha256"] == shown["adapters"] == "none"
    assert run("info", tmp_path, "--profile", "qwen2.5-vl") == 0
    assert rows(capsys.readouterr().out)["profile_reason"] == "asked for by name"


def test_a_checkpoint_is_no_model(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert run("info", tmp_path) == 1
    assert "`jmm convert` makes GGUF files of it" in capsys.readouterr().err


def test_arguments_have_the_names_of_options(
    model: list[str], pictures: list[Path], capsys: Capture
) -> None:
    with Embedder(model[1], n_threads=1) as texts, pytest.raises(InputError, match="mmproj= to"):
        texts.encode_images(pictures[0])
    assert run("embed", pictures[0], "--model", model[1]) == 1
    assert "pass --mmproj to embed pictures" in capsys.readouterr().err


def test_version(capsys: Capture) -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    wanted = re.search(r'^version = "(.+)"$', project, re.MULTILINE)
    assert wanted is not None
    with pytest.raises(SystemExit) as caught:
        run("--version")
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"jmm {wanted[1]}\n"
    assert jmm.__version__ == wanted[1]


def test_output_is_whole_or_not_there(
    model: list[str], pictures: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "vectors"  # no suffix: none is added
    command = [sys.executable, "-m", "jmm", "embed", *pictures, *model, "--output", target]
    line = f"trap '' XFSZ; ulimit -f 1; {' '.join(map(str, command))}"
    target.write_text("older")
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(folder) == ["vectors"]
    assert target.read_text() == "older"
    assert subprocess.run(command, check=False).returncode == 0
    assert os.listdir(folder) == ["vectors"]
    with np.load(target) as file:
        assert len(file["vectors"]) == len(pictures)


@pytest.mark.parametrize("kind", ["picture", "model", "folder"])
def test_output_overwrites_nothing_that_is_read(
    kind: str, model: list[str], pictures: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    linked = tmp_path / "linked.png"
    linked.symlink_to(pictures[0])
    target = {"picture": linked, "model": Path(model[3]), "folder": tmp_path}[kind]
    before = {path: path.read_bytes() for path in (pictures[0], Path(model[3]))}
    assert run("embed", *pictures, *model, "--output", target) == 1
    wanted = "no file that can be replaced" if kind == "folder" else "would overwrite what is read"
    assert wanted in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["loop", "loop/x.npz", "n" * 300])
def test_output_that_cannot_be_written(
    name: str, pictures: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    for end in ("", ".png", ".json"):
        (tmp_path / f"loop{end}").symlink_to(f"loop{end}")
    for words in (
        ["embed", pictures[0], "--output", tmp_path / name],
        ["heatmap", pictures[0], "a", tmp_path / f"{name}.png"],
        ["demo", "--output", tmp_path / f"{name}.png"],
    ):
        assert run(*words) == 1
        assert capsys.readouterr().err.splitlines()[-1].startswith("jmm: ")
    assert all((tmp_path / f"loop{end}").is_symlink() for end in ("", ".png", ".json"))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_name_can_be_printed(encoding: str, pictures: list[Path]) -> None:
    odd = pictures[0].with_name(os.fsdecode("Größe 大\x7f".encode() + b"\xff.png"))
    pictures[0].rename(odd)
    env = {**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"}
    words = [sys.executable, "-m", "jmm", "embed", odd, "--query", "a", "--quiet"]
    done = subprocess.run(words, capture_output=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    name = {
        "ascii": rb"Gr\xf6\xdfe \u5927",
        "latin-1": b"Gr\xf6\xdfe \\u5927",
        "utf-8": "Größe 大".encode(),
    }[encoding]
    assert done.stdout.rpartition(b"/")[2] == name + b"\\x7f\xff.png\n"
    done = subprocess.run([*words, "--json"], capture_output=True, check=False, env=env)
    (entry,) = json.loads(done.stdout)["files"]
    assert entry["file"].encode().endswith("Größe 大\x7f\\xff.png".encode())


@pytest.mark.parametrize("words", [["info"], ["info", "--json"], ["--help"]])
def test_a_reader_that_goes(words: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "jmm", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read().decode()
    assert process.returncode == (0 if "--help" in words else 141)
    assert [line for line in said.splitlines() if "built-in" not in line] == []


def test_a_full_disk() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jmm", "info", "--quiet"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "jmm: [Errno 28] No space left on device\n"


def test_a_disk_that_is_full_of_output(pictures: list[Path], tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys\n"
        "from jmm.cli import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    for words, name in (
        (["embed", pictures[0], "--query", "a", "--quiet", "--output"], "v.npz"),
        (["heatmap", pictures[0], "a", "--quiet"], "map.png"),
    ):
        target = tmp_path / name
        given = [sys.executable, "-c", code, *words, target]
        done = subprocess.run(given, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr == f"jmm: [Errno 27] File too large: '{target}'\n"
        assert not target.exists()
    assert not any(path.suffix == ".part" for path in tmp_path.iterdir())


def test_without_stderr(model: list[str], tmp_path: Path) -> None:
    """Whoever starts the program may have closed it."""
    words = [sys.executable, "-m", "jmm", "quantize", model[1], tmp_path / "out.gguf"]
    line = " ".join([*map(str, words), "--type", "q8_0", "2>&-"])
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert (tmp_path / "out.gguf").is_file()
    line = " ".join(map(str, [sys.executable, "-m", "jmm", "embed", "none.png", "2>&-"]))
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
