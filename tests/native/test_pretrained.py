"""Embedder.from_pretrained against a hub on this machine, in order and out of order."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jmm import Embedder, InputError, ModelLoadError
from jmm.convert import convert
from jmm.hub import remote
from jmm.search.identity import Identity
from subprocess_case import run
from support import checkpoint, gguf_writer, golden, jina_calls, tiny
from support.hub_server import HubServer, sha256
from support.split import split

huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs pip install 'jmm[hub]'")
constants = pytest.importorskip("huggingface_hub.constants")

PLAIN, BUNDLE, GATED = "org/plain", "org/bundle", "org/gated"
TEXTS = ("model-Q8_0.gguf", "model-F32.gguf")
PICTURE = np.arange(56 * 84 * 3, dtype=np.uint8).reshape(56, 84, 3)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with what the repos hold."""
    folder = tmp_path_factory.mktemp("sources")
    plain = folder / "plain"
    plain.mkdir()
    model, weights = tiny.MODELS["qwen25_small"], golden.weights("qwen25_small")
    for name in TEXTS:
        gguf_writer.write_text(model, weights, plain / name, name[6:-5])
    gguf_writer.write_mmproj(model, weights, plain / "mmproj-model-F16.gguf", "F16")
    (plain / "README.md").write_text("a card")
    model = tiny.MODELS[jina_calls.MODEL]
    bundle = convert(checkpoint.write(model, folder / "jina", checkpoint.JINA), folder / "bundle")
    parts = folder / "parts"
    parts.mkdir()
    split(plain / TEXTS[1], parts / "model-F32", 3)
    return {"plain": plain, "bundle": bundle, "parts": parts}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def hub(
    sources: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HubServer]:
    """The server, with the client turned to it and to an empty cache."""
    repos = {PLAIN: files(sources["plain"]), BUNDLE: files(sources["bundle"])}
    repos |= {GATED: {TEXTS[0]: repos[PLAIN][TEXTS[0]]}, "org/parts": files(sources["parts"])}
    with HubServer(repos, gated={GATED}) as server:
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(remote, "_PAUSE_S", 0.0)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server


def load(repo: str = PLAIN, **options: Any) -> Embedder:
    if repo == PLAIN:
        options = {"file_type": "Q8_0"} | options
    return Embedder.from_pretrained(repo, n_threads=1, **options)


def vectors(embedder: Embedder) -> np.ndarray:
    with embedder:
        return np.stack([embedder.encode_query("a boat"), embedder.encode_images(PICTURE)])


def refused(match: str, repo: str = PLAIN, **options: Any) -> ModelLoadError:
    with pytest.raises(ModelLoadError, match=match) as caught:
        load(repo, **options)
    return caught.value


# --- what is loaded ---


def test_a_plain_repo(hub: HubServer, sources: dict[str, Path], tmp_path: Path) -> None:
    direct = Embedder(
        sources["plain"] / TEXTS[0], sources["plain"] / "mmproj-model-F16.gguf", n_threads=1
    )
    right = vectors(direct)
    embedder = load(PLAIN, max_pixels=56 * 112)
    assert embedder.info["repo"] == PLAIN
    assert embedder.info["revision"] == hub.find(PLAIN, "main")[0]
    assert embedder.info["max_pixels"] == 56 * 112
    assert embedder.info["sha256"] == {
        name: sha256(hub.repos[PLAIN][name]) for name in (TEXTS[0], "mmproj-model-F16.gguf")
    }
    np.testing.assert_array_equal(vectors(embedder), right)
    assert {name for name in os.listdir(tmp_path / "cache") if name[0] != "."} - {
        "CACHEDIR.TAG"
    } == {"models--org--plain"}
    assert not hub.gets(TEXTS[1])


def test_the_vectors_are_those_of_the_file_type(hub: HubServer) -> None:
    assert np.abs(vectors(load(file_type="f32")) - vectors(load())).max() > 1e-5


def test_text_alone(hub: HubServer) -> None:
    with load(mmproj=False) as embedder, pytest.raises(InputError, match="picture"):
        embedder.encode_images(PICTURE)
    assert not hub.gets("mmproj")


def test_a_bundle(hub: HubServer, sources: dict[str, Path]) -> None:
    with Embedder(sources["bundle"], n_threads=1) as direct, load(BUNDLE) as embedder:
        assert embedder.info["tasks"] == direct.info["tasks"]
        assert embedder.info["sha256"] == {
            name: sha256(raw) for name, raw in hub.repos[BUNDLE].items()
        }
        for task in direct.info["tasks"]:
            np.testing.assert_array_equal(
                embedder.encode_query("a", task=task), direct.encode_query("a", task=task)
            )
    with pytest.raises(InputError, match=r"has a jmm\.json"):
        load(BUNDLE, file_type="q8_0")
    with load(BUNDLE, model="text.gguf", adapters={"code": "adapter-code.gguf"}) as embedder:
        assert embedder.info["tasks"] == ("code",)


def test_a_bundle_that_names_what_is_not_there(hub: HubServer) -> None:
    del hub.repos[BUNDLE]["adapter-code.gguf"]
    hub.commit(BUNDLE)
    refused("has no file adapter-code.gguf", BUNDLE)


def test_a_model_in_parts(hub: HubServer, sources: dict[str, Path]) -> None:
    with Embedder(sources["plain"] / TEXTS[1], n_threads=1) as whole:
        right = whole.encode_query("a boat")
    with load("org/parts") as embedder:
        np.testing.assert_array_equal(embedder.encode_query("a boat"), right)
        assert len(embedder.info["sha256"]) == 3


def test_a_folder_is_chosen_from_in_the_same_way(sources: dict[str, Path]) -> None:
    for folder in (sources["plain"], str(sources["plain"])):
        with Embedder.from_pretrained(folder, file_type="Q8_0", n_threads=1) as embedder:
            assert embedder.info["model"] == str(sources["plain"] / TEXTS[0])
            assert embedder.info["repo"] is None
            copy = pickle.loads(pickle.dumps(embedder))
            assert copy.info == embedder.info
    with Embedder.from_pretrained(sources["bundle"], n_threads=1) as embedder:
        assert embedder.profile.name == "jina-embeddings-v4"
    with pytest.raises(InputError, match="F32, Q8_0; choose one, as with file_type='F32'"):
        Embedder.from_pretrained(sources["plain"])
    with pytest.raises(InputError, match="has no revision"):
        Embedder.from_pretrained(sources["plain"], revision="main")
    with pytest.raises(ModelLoadError, match="no such folder"):
        Embedder.from_pretrained(sources["plain"] / "none")


# --- a second time ---


def test_what_is_there_is_not_loaded_again(hub: HubServer) -> None:
    right = vectors(load())
    seen = len(hub.gets())
    assert seen == 2
    np.testing.assert_array_equal(vectors(load()), right)
    assert len(hub.gets()) == seen


def test_offline(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    refused("is not in the cache .*offline", local_files_only=True)
    right = vectors(load())
    hub.asked.clear()
    np.testing.assert_array_equal(vectors(load(local_files_only=True)), right)
    # the repo's whole list is known, so the choice is the one that was made online
    with pytest.raises(InputError, match="F32, Q8_0"):
        load(file_type=None, local_files_only=True)
    refused(
        "model-F32.gguf of revision .* is not in the cache", file_type="F32", local_files_only=True
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    np.testing.assert_array_equal(vectors(load()), right)
    refused("another is not in the cache", revision="another")
    assert not hub.asked


def test_offline_with_what_another_program_has_loaded(hub: HubServer) -> None:
    for name in (TEXTS[0], "mmproj-model-F16.gguf"):
        huggingface_hub.hf_hub_download(PLAIN, name)
    embedder = load(file_type=None, local_files_only=True)
    assert embedder.info["sha256"][TEXTS[0]] == sha256(hub.repos[PLAIN][TEXTS[0]])


def test_the_cache_stays_one_for_the_client(hub: HubServer, tmp_path: Path) -> None:
    vectors(load())
    found = huggingface_hub.scan_cache_dir(tmp_path / "cache")
    assert not found.warnings
    assert [repo.repo_id for repo in found.repos] == [PLAIN]
    assert {
        file.file_name for repo in found.repos for rev in repo.revisions for file in rev.files
    } == {
        TEXTS[0],
        "mmproj-model-F16.gguf",
    }
    assert next(iter(found.repos)).refs.keys() == {"main"}


def test_a_commit_needs_no_network(hub: HubServer) -> None:
    commit = load().info["revision"]
    hub.status = 503
    assert load(revision=commit).info["revision"] == commit
    refused("503")


def test_pickling_keeps_the_commit(hub: HubServer) -> None:
    embedder = load(token="hf_any", max_pixels=56 * 112)
    dump = pickle.dumps(embedder)
    assert b"hf_any" not in dump
    hub.repos[PLAIN][TEXTS[0]] = hub.repos[PLAIN][TEXTS[1]]
    newer = hub.commit(PLAIN)
    copy = pickle.loads(dump)
    assert copy.info == embedder.info
    np.testing.assert_array_equal(vectors(copy), vectors(embedder))
    assert load().info["revision"] == newer


# --- what goes wrong ---


@pytest.mark.parametrize("cut", [1, 1000, 300_000])
def test_a_connection_that_ends_goes_on(cut: int, hub: HubServer) -> None:
    hub.cut = cut
    vectors(load())
    first, second = hub.gets("mmproj")
    assert (first.range, second.range) == (None, f"bytes={cut}-")


def test_another_call_goes_on_where_the_last_stopped(hub: HubServer) -> None:
    hub.cut, hub.cut_always = 100_000, True
    hub.repos[PLAIN].pop(TEXTS[1])
    hub.commit(PLAIN)
    size = len(hub.repos[PLAIN]["mmproj-model-F16.gguf"])
    assert size > 200_000

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote.time, "sleep", stop)
        with pytest.raises(KeyboardInterrupt):
            load()
    hub.cut = 0
    vectors(load())
    assert [asked.range for asked in hub.gets("mmproj")] == [None, "bytes=100000-"]


def test_a_server_without_ranges(hub: HubServer) -> None:
    hub.cut, hub.ignores_range = 1000, True
    vectors(load())
    assert len(hub.gets("mmproj")) == 2


def test_a_file_that_comes_damaged(hub: HubServer) -> None:
    hub.wrong = {TEXTS[0]}
    right = sha256(hub.repos[PLAIN][TEXTS[0]])
    refused(rf"org/plain: {TEXTS[0]} came damaged: its hash is \w+ and {right} is")
    hub.wrong = set()
    vectors(load())


def test_a_small_file_that_comes_damaged(hub: HubServer) -> None:
    hub.wrong = {"jmm.json"}
    refused("jmm.json", BUNDLE)
    hub.wrong = set()
    load(BUNDLE).close()


def test_a_file_that_was_damaged_in_the_cache(hub: HubServer, tmp_path: Path) -> None:
    load().close()
    path = next((tmp_path / "cache").rglob(TEXTS[0])).resolve()
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    for options in ({}, {"local_files_only": True}):
        said = str(refused("the file is damaged: its hash is .*; delete it to load it", **options))
    Path(said.partition(": the file")[0]).unlink()
    vectors(load())


def test_a_page_in_place_of_a_file(hub: HubServer) -> None:
    hub.page = b"<html>Log in</html>"
    sizes = "|".join(str(len(raw)) for raw in hub.repos[PLAIN].values())
    refused(f"cannot be loaded: it has 19 bytes and ({sizes}) are right")
    hub.page = b""
    vectors(load())


@pytest.mark.parametrize(
    "notes", ['{"checked": {}, "files": {"model-Q8_0.gguf": ["x", 5]}}', "[" * 100_000]
)
def test_damaged_notes_in_the_cache(notes: str, hub: HubServer, tmp_path: Path) -> None:
    load(mmproj=False).close()
    (path,) = (tmp_path / "cache").rglob("jmm/*.json")
    path.write_text(notes)
    for options in ({"local_files_only": True}, {}):
        with load(mmproj=False, **options) as embedder:
            right = sha256(hub.repos[PLAIN][TEXTS[0]])
            assert embedder.info["sha256"] == {TEXTS[0]: right}


def test_names_and_revisions_that_are_not_there(hub: HubServer) -> None:
    refused("org/none: there is no such repo, or it is private", "org/none")
    refused("org/plain: it has no revision another", revision="another")
    refused(f"it has no revision {'0' * 40}", revision="0" * 40)
    refused("has no file none.gguf; it has README.md, mmproj", model="none.gguf", file_type=None)
    refused("has no model of file_type 'Q2_K'; it has F32, Q8_0", file_type="Q2_K")


def test_gated_and_private_repos(hub: HubServer) -> None:
    hub.private = {PLAIN}
    refused("the repo is gated: .* token= was not given", GATED)
    refused("the repo is gated: .* the token was refused", GATED, token="hf_wrong")
    refused("no such repo, or it is private and token= was not given")
    load(GATED, token=hub.token).close()
    assert {asked.authorization for asked in hub.gets()} == {None}, "the token left the hub"


@pytest.mark.parametrize("status", [403, 500, 503])
def test_a_server_out_of_order(status: int, hub: HubServer) -> None:
    hub.status = status
    refused(f"{status}")


def test_a_server_that_is_down(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = load(mmproj=False).info["revision"]
    hub.server.shutdown()
    hub.server.server_close()
    error = refused("org/plain: revision main cannot be loaded: .*local_files_only=True")
    assert error.__cause__ is not None
    refused("mmproj-model-F16.gguf of revision .* cannot be loaded", revision=commit)
    load(mmproj=False, local_files_only=True).close()


def test_a_server_that_always_breaks_off(hub: HubServer, caplog: pytest.LogCaptureFixture) -> None:
    hub.cut, hub.cut_always = 1, True
    hub.ignores_range = True
    with caplog.at_level(logging.WARNING, "jmm"):
        refused("cannot be loaded")
    assert "going on at 1 bytes" in caplog.text


def test_a_full_disk(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(remote.shutil, "disk_usage", lambda _: usage)
    refused("bytes more and 1,000 are free")


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "org/../x",
        "org",
        "/org/x",
        "org/x/y",
        "org/..",
        "",
        "org/x\n",
        "org//x",
        "a b/c",
        "ö/x",
        "a" * 300,
        "loop",
        "\0",
    ],
)
def test_names_that_are_paths(
    name: str, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="is neither a folder nor"):
        load(name)
    assert not hub.asked


def test_a_folder_that_cannot_be_read(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("os.listdir", refuse)
    with pytest.raises(ModelLoadError, match="the folder cannot be read: Permission denied"):
        load(str(tmp_path))
    assert not hub.asked


def test_a_file_is_no_repo(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="is a file; pass it to Embedder"):
        load("models/a.gguf")
    assert not hub.asked


@pytest.mark.parametrize("revision", ["../x", "a/../../b", "/x", " ", "a\nb", 3])
def test_revisions_that_are_paths(revision: Any, hub: HubServer) -> None:
    with pytest.raises(InputError, match="revision"):
        load(revision=revision)
    assert not hub.asked


def test_listed_names_that_leave_the_folder(hub: HubServer) -> None:
    hub.listed = ["../../evil.gguf", "/evil.gguf", "a/../../evil.gguf", "a\\evil.gguf", "a//e.gguf"]
    with load(file_type="Q8_0") as embedder:
        assert len(embedder.info["sha256"]) == 2
    refused("has no file ../../evil.gguf", model="../../evil.gguf", file_type=None)


def test_a_listed_name_that_no_disk_takes(hub: HubServer) -> None:
    name = f"{'a' * 251}.gguf"
    hub.listed = [name]
    refused("has no file aaaa", model=name, file_type=None)


def test_options_are_checked_before_the_download(hub: HubServer) -> None:
    with pytest.raises(TypeError, match="n_context"):
        load(n_context=3)
    with pytest.raises(InputError, match="no file name"):
        load(mmproj=7)
    with pytest.raises(InputError, match="a dict from task"):
        load(adapters=["a"])
    with pytest.raises(InputError, match="cache_dir is 7; the path of a folder is needed"):
        load(cache_dir=7)
    with pytest.raises(ModelLoadError, match="is not in the cache ~nobody-here"):
        load(cache_dir="~nobody-here", local_files_only=True)
    assert not hub.asked


# --- in a process of its own ---


def test_environment_silence_and_progress(hub: HubServer, tmp_path: Path) -> None:
    os.environ |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    try:
        lines = run(
            """
import io
keywords = {"file_type": "Q8_0", "n_threads": 1}
with Embedder.from_pretrained("org/plain", **keywords) as embedder:
    print(embedder.info["repo"])
os.environ["HF_HUB_OFFLINE"] = "1"
import huggingface_hub
sys.stderr = io.StringIO()
Embedder.from_pretrained("org/gated", show_progress=True, token="hf_right").close()
shown, sys.stderr = sys.stderr.getvalue(), sys.__stderr__
print("100%" in shown, "B/s" in shown)
""",
        )
        assert lines == ["org/plain", "True True"]
        hub.asked.clear()
        os.environ["HF_HUB_OFFLINE"] = "1"
        assert run(
            """
embedder = Embedder.from_pretrained("org/plain", file_type="Q8_0", n_threads=1)
print(embedder.info["repo"], raised(lambda: Embedder.from_pretrained("org/bundle")))
"""
        ) == ["org/plain ModelLoadError"]
        assert not hub.asked
    finally:
        for name in ("HF_ENDPOINT", "HF_HOME", "HF_HUB_OFFLINE"):
            os.environ.pop(name, None)


def test_two_processes_at_once(hub: HubServer, tmp_path: Path) -> None:
    os.environ |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    try:
        lines = run(
            """
import subprocess
code = (
    "from jmm import Embedder\\n"
    "with Embedder.from_pretrained('org/bundle', n_threads=1) as e:\\n"
    "    print(sorted(e.info['sha256']) == sorted(set(e.info['sha256'])), e.dim)"
)
both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
print([process.communicate()[0].decode().split() for process in both])
"""
        )
        assert lines == ["[['True', '64'], ['True', '64']]"]
        assert len(hub.gets("text.gguf")) == 1
    finally:
        for name in ("HF_ENDPOINT", "HF_HOME"):
            os.environ.pop(name, None)


def test_without_the_client() -> None:
    assert run(
        """
sys.modules["huggingface_hub"] = None
try:
    Embedder.from_pretrained("org/name")
except ImportError as error:
    print(type(error).__name__, error)
"""
    ) == [
        "MissingExtraError a model by the name of its repo needs huggingface_hub: "
        "pip install huggingface_hub"
    ]


def test_an_index_finds_the_model_again(hub: HubServer) -> None:
    with load(BUNDLE) as embedder:
        identity = Identity.of(embedder)
        with identity.load({"n_threads": 1}) as again:
            np.testing.assert_array_equal(again.encode_query("a"), embedder.encode_query("a"))
            identity.check(Identity.of(again))


def test_the_example_of_the_page(hub: HubServer) -> None:
    page = (Path(__file__).parents[2] / "docs" / "hub.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    small, large = (hub.repos[PLAIN][name] for name in TEXTS)
    tower = hub.repos[PLAIN]["mmproj-model-F16.gguf"]
    hub.repos["org/name"] = {"name-Q8_0.gguf": small, "name-F16.gguf": large, "mmproj.gguf": tower}
    hub.commit("org/name")
    exec(code, {})
    assert len(hub.gets()) == 3


def test_a_listing_without_hashes_or_with_wrong_ones(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ("../../../evil", None, 7):
        with monkeypatch.context() as patch:
            patch.setattr("support.hub_server.listed_hash", lambda _, wrong=wrong: wrong)
            embedder = load(cache_dir=tmp_path / str(wrong).strip("./"))
        assert embedder.info["sha256"][TEXTS[0]] == sha256(hub.repos[PLAIN][TEXTS[0]])
    assert not any("evil" in asked.path for asked in hub.asked)
