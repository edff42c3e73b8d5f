"""``Embedder.trace``, heat maps and comparisons on tiny models."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import exactness
from jmm import (
    ContextOverflowError,
    Embedder,
    InputError,
    ModelLoadError,
    NonFiniteError,
    demo,
    maxsim,
)
from jmm.cli import main
from jmm.files import read_header
from jmm.inspect import compare, heatmap, resolutions, vocabulary
from jmm.inspect.vocabulary import token_texts
from support import extras, family_golden, gguf_writer, golden, qwen3, tiny, vision_family
from support.sequences import cosine, worst_row_error
from support.vision_family import VISION_FAMILIES

Capture = pytest.CaptureFixture[str]
Files = Callable[..., tuple[Path, Path]]

MODEL = tiny.MODELS["qwen25_small"]
QUERY = "a small red square"
PAGE = tiny.picture(8, 12, seed=5)


@pytest.fixture(scope="module")
def projector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Puts some best matches inside the picture and some outside."""
    path = tmp_path_factory.mktemp("projector") / "projector.gguf"
    return gguf_writer.write_projector(path, extras.projector(MODEL, seed=9).tensors())


@pytest.fixture(scope="module")
def embedder(tiny_files: Files, projector: Path) -> Iterator[Embedder]:
    files = tiny_files(MODEL.name)
    settings = {"projector": projector, "profile": "jina-embeddings-v4", "n_threads": 1}
    with Embedder(*files, **settings) as opened:
        yield opened


@pytest.fixture(scope="module")
def plain(tiny_files: Files) -> Iterator[Embedder]:
    """Without a projector."""
    with Embedder(*tiny_files(MODEL.name), n_threads=1) as opened:
        yield opened


# --- traces ---


@pytest.mark.parametrize("key", ["4x6", "20x14", "2x40"])
def test_hidden_states_of_a_picture(key: str, embedder: Embedder) -> None:
    case = golden.load(MODEL.name)[key]
    trace = embedder.trace(case.images[0])
    pad = MODEL.vocab.id("<|image_pad|>")
    assert [pad if i < 0 else i for i in trace.ids] == case.ids.tolist()
    assert worst_row_error(trace.hidden[case.rows], case.hidden) <= exactness.row_tolerance(case)
    assert trace.span == case.span
    assert trace.picture is not None
    assert [i for i, id_ in enumerate(case.ids) if id_ == pad] == [*range(*trace.picture)]
    assert trace.grid == tuple(side // 2 for side in case.grids[0])
    assert trace.vectors is None
    assert trace.patches is not None
    np.testing.assert_array_equal(trace.patches[0], case.patches())


def test_hidden_states_of_a_query(embedder: Embedder) -> None:
    case = golden.load(MODEL.name)["sentence"]
    text = (case.text or "").removeprefix(case.prefix)
    kind = "query" if case.prefix == "Query: " else "document"
    trace = embedder.trace(text, kind=kind)
    assert trace.ids == case.ids.tolist()
    assert worst_row_error(trace.hidden[case.rows], case.hidden) <= exactness.TEXT_ROW
    assert (trace.picture, trace.grid, trace.patches) == (None, None, None)


def test_token_vectors_are_those_of_the_encode_methods(embedder: Embedder) -> None:
    trace = embedder.trace(PAGE, multi_vector=True)
    right = embedder.encode_images(PAGE, multi_vector=True)
    np.testing.assert_array_equal(trace.vectors, right)
    np.testing.assert_array_equal(trace.hidden, embedder.trace(PAGE).hidden)


def test_vision_tokens_have_no_patches(plain: Embedder) -> None:
    whole = plain.trace(PAGE)
    encoded = plain.trace(plain.encode_vision(PAGE))
    np.testing.assert_array_equal(encoded.hidden, whole.hidden)
    assert (encoded.grid, encoded.picture) == (whole.grid, whole.picture)
    assert encoded.patches is None


def test_limits_of_a_picture(plain: Embedder) -> None:
    assert plain.trace(PAGE).grid == (4, 6)
    assert plain.trace(PAGE, max_pixels=28 * 28 * 6).grid == (2, 3)
    assert plain.trace(PAGE, max_pixels=28 * 28).grid == (1, 1)
    assert plain.info["max_pixels"] == 1_003_520
    with pytest.raises(InputError, match="max_pixels is 0"):
        plain.trace(PAGE, max_pixels=0)


@pytest.mark.parametrize(
    ("item", "options", "message"),
    [
        (PAGE, {"kind": "picture"}, "kind is 'picture'"),
        (PAGE, {"kind": None}, "kind is None"),
        (PAGE, {"kind": ["image"]}, "kind is"),
        (PAGE, {"task": "none"}, "task is 'none'"),
        (PAGE, {"multi_vector": True}, "gives no token vectors.*projector="),
        ("none.png", {}, "none.png: cannot open"),
        ("", {"kind": "query"}, "the text is empty"),
        ([PAGE, PAGE], {"kind": "document"}, "has 2 pictures; one can be traced"),
    ],
)
def test_bad_items(item: object, options: dict[str, object], message: str, plain: Embedder) -> None:
    with pytest.raises(InputError, match=message):
        plain.trace(item, **options)  # type: ignore[arg-type]


def test_too_long(tiny_files: Files) -> None:
    with (
        Embedder(*tiny_files(MODEL.name), n_ctx=16, n_threads=1) as small,
        pytest.raises(ContextOverflowError, match="24 tokens and n_ctx is 16"),
    ):
        small.trace(PAGE)


def test_a_model_that_gives_nan(tmp_path: Path, tiny_files: Files) -> None:
    weights = dict(golden.weights(MODEL.name))
    name = "model.language_model.norm.weight"
    weights[name] = np.full_like(weights[name], np.nan)
    text = gguf_writer.write_text(MODEL, weights, tmp_path / "nan.gguf")
    with (
        Embedder(text, tiny_files(MODEL.name)[1], n_threads=1) as broken,
        pytest.raises(NonFiniteError),
    ):
        broken.trace(PAGE)


# --- heat maps ---


@pytest.mark.parametrize("asked", [QUERY, tiny.picture(4, 6, seed=9)], ids=["text", "picture"])
def test_the_map_sums_to_the_score(asked: Any, embedder: Embedder) -> None:
    found = heatmap(embedder, PAGE, asked)
    encode = embedder.encode_query if isinstance(asked, str) else embedder.encode_images
    query = encode([asked], multi_vector=True)
    assert len(found.tokens) == len(query[0])
    page = embedder.encode_images([PAGE], multi_vector=True)
    right = maxsim(query, page)[0, 0]
    np.testing.assert_allclose(found.score, right, rtol=1e-6)
    np.testing.assert_allclose(found.contributions.sum() + found.outside, right, rtol=1e-6)
    np.testing.assert_allclose(sum(t.similarity for t in found.tokens), right, rtol=1e-6)
    assert found.contributions.shape == (4, 6)
    assert found.picture.size == (6 * 28, 4 * 28)


def test_each_cell_by_itself(embedder: Embedder) -> None:
    """Every number once more, by loops over the encode methods' vectors."""
    found = heatmap(embedder, PAGE, QUERY)
    query = embedder.encode_query(QUERY, multi_vector=True).astype(float)
    page = embedder.encode_images(PAGE, multi_vector=True).astype(float)
    ids = embedder.trace(PAGE).ids
    first = ids.index(-1)
    shares = np.zeros(len(page))
    for token, row in zip(found.tokens, query, strict=True):
        products = [float(row @ other) for other in page]
        best = max(range(len(page)), key=products.__getitem__)
        assert token.row == best
        np.testing.assert_allclose(token.similarity, products[best], rtol=1e-6)
        inside = ids[best] == -1
        assert token.cell == (((best - first) // 6, (best - first) % 6) if inside else None)
        shares[best] += products[best]
    for y in range(4):
        for x in range(6):
            row = first + 6 * y + x
            np.testing.assert_allclose(found.contributions[y, x], shares[row], atol=1e-9)
            mean = np.mean([float(other @ page[row]) for other in query])
            np.testing.assert_allclose(found.similarities[y, x], mean, atol=1e-6)
    assert np.count_nonzero(found.contributions) >= 2
    assert found.outside != 0


def test_cells_follow_the_picture(embedder: Embedder) -> None:
    """A causal model's row changes only if its own cell or an earlier window's does."""
    changed = PAGE.copy()
    changed[-28:, -28:] = 255  # the last cell
    first, second = embedder.trace(PAGE), embedder.trace(changed)
    assert first.picture is not None
    start, stop = first.picture
    moved = np.abs(first.hidden - second.hidden).max(axis=1)
    assert moved[:start].max() == 0
    assert moved[start:stop].reshape(4, 6)[3, 5] == moved[start:stop].max() > 0


def test_query_tokens_are_spelt(embedder: Embedder) -> None:
    found = heatmap(embedder, PAGE, QUERY)
    assert len(found.tokens) > 4
    assert "".join(token.text for token in found.tokens) == f"Query: {QUERY}"
    # This vocabulary has tokens of single bytes for letters beyond ASCII.
    ids = embedder.trace("数", kind="query").ids
    assert token_texts(str(embedder.info["model"]), ids)[-3:] == ["\ufffd"] * 3
    assert token_texts(str(embedder.info["model"]), [-1, MODEL.vocab.id("<|im_end|>")]) == [
        "",
        "<|im_end|>",
    ]


def test_spellings_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "text.gguf"
    shutil.copy(demo.paths()[0], path)
    reads = []
    read = vocabulary.layout.read_strings
    monkeypatch.setattr(
        vocabulary.layout, "read_strings", lambda *words: reads.append(words) or read(*words)
    )
    first = token_texts(str(path), [10, 300])
    assert token_texts(str(path), [300, 10]) == first[::-1]
    assert len(reads) == 1
    os.utime(path, ns=(1, 1))
    assert token_texts(str(path), [10, 300]) == first
    assert len(reads) == 2


def test_a_vocabulary_that_is_no_longer_there(tmp_path: Path, tiny_files: Files) -> None:
    path = tmp_path / "text.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(ModelLoadError, match="not a readable GGUF file"):
        token_texts(str(path), [1])
    shutil.copy(demo.paths()[1], path)  # a tower has no vocabulary
    with pytest.raises(ModelLoadError, match="has changed since it was loaded"):
        token_texts(str(path), [1])
    path.unlink()
    with pytest.raises(ModelLoadError, match="the file is gone"):
        token_texts(str(path), [1])


def test_every_spelling_is_that_of_gguf_py(tiny_files: Files) -> None:
    path = tiny_files(MODEL.name)[0]
    reader = gguf.GGUFReader(path)
    right = reader.get_field("tokenizer.ggml.tokens").contents()
    header = read_header(path)
    found = vocabulary.layout.read_strings(header, "tokenizer.ggml.tokens")
    assert [spelling.decode() for spelling in found] == right
    assert vocabulary.layout.read_strings(header, "none.such") == []


def test_the_map_is_the_same_again(embedder: Embedder) -> None:
    first, second = (heatmap(embedder, PAGE, QUERY) for _ in range(2))
    assert first.record() == second.record()
    assert first.draw().tobytes() == second.draw().tobytes()


def test_colours_of_the_map(embedder: Embedder) -> None:
    found = heatmap(embedder, Image.new("RGB", (168, 112), "white"), QUERY)
    drawn = found.draw()
    scale = 3  # of 168 pixels, to reach 448
    assert drawn.width == 168 * scale
    strongest = np.unravel_index(np.abs(found.contributions).argmax(), (4, 6))
    side = 28 * scale
    pixel = drawn.getpixel((int(strongest[1]) * side + 5, int(strongest[0]) * side + 5))
    assert pixel == (227, 51, 51)
    y, x = np.argwhere(found.contributions == 0)[0].tolist()
    assert drawn.getpixel((x * side + 5, y * side + 5)) == (255, 255, 255)
    with pytest.raises(InputError, match="values is 'x'"):
        found.draw("x")


@pytest.mark.parametrize("size", [(1, 1), (3, 400), (2000, 30)])
def test_odd_pages(size: tuple[int, int], embedder: Embedder) -> None:
    found = heatmap(embedder, Image.new("L", size, 128), "x")
    assert found.draw().width >= 448 or found.draw().height >= 448
    np.testing.assert_allclose(found.contributions.sum() + found.outside, found.score, rtol=1e-9)


def test_larger_cells(tmp_path: Path) -> None:
    """Qwen3-VL's patches have 16 pixels, and a token has four of them."""
    weights = qwen3.golden_weights()
    text = qwen3.write_text(weights, tmp_path / "text.gguf")
    mmproj = qwen3.write_mmproj(weights, tmp_path / "mmproj.gguf")
    with Embedder(text, mmproj, min_pixels=1, n_threads=1) as embedder:
        picture, (low, high) = resolutions(embedder, np.zeros((128, 192, 3), np.uint8))
        assert (low.cell, high.cell) == (32, 32)
        assert (low.grid, high.grid) == ((2, 3), (4, 6))
        assert embedder.trace("a text", kind="query").cell is None
        found = compare(("a", "a"), picture, [low, high], [low, high])
    assert (found.low.picture.size, found.high.picture.size) == ((96, 64), (192, 128))


def test_a_model_that_cuts_tiles(tmp_path: Path) -> None:
    name = "smolvlm"
    files = vision_family.write(
        VISION_FAMILIES[name], family_golden.load(name).weights, tmp_path / name
    )
    with Embedder(*files, n_threads=1) as embedder:
        for page in (PAGE, np.zeros((8, 8, 3), np.uint8)):
            with pytest.raises(InputError, match="this model cuts pictures into tiles"):
                resolutions(embedder, page)
        n_embd = embedder.dim
    projector = extras.projector(SimpleNamespace(seed=0, hidden=n_embd), seed=9)
    path = gguf_writer.write_projector(tmp_path / "p.gguf", projector.tensors())
    with (
        Embedder(*files, projector=path, n_threads=1) as embedder,
        pytest.raises(InputError, match="this model cuts pictures into tiles"),
    ):
        heatmap(embedder, PAGE, QUERY)


# --- comparisons ---


def test_a_model_with_itself(plain: Embedder, tiny_files: Files) -> None:
    picture, first = resolutions(plain, PAGE)
    with Embedder(*tiny_files(MODEL.name), n_threads=1) as again:
        _, second = resolutions(again, PAGE)
    found = compare(("a", "b"), picture, first, second)
    assert found.low.cells.shape == (2, 3)
    assert found.high.cells.shape == (4, 6)
    for part in (found.low, found.high):
        assert (part.cells == 0).all()
        assert (part.around == 0).all()
        assert part.pooled == 0
    drawn = np.asarray(found.draw())
    left = drawn[: 4 * 28, : 6 * 28]
    assert (left == left[..., :1]).all()  # nothing is red


def test_a_quantized_copy(plain: Embedder, tiny_files: Files) -> None:
    picture, first = resolutions(plain, PAGE)
    means = []
    for file_type in ("F16", "Q8_0"):
        with Embedder(*tiny_files(MODEL.name, file_type), n_threads=1) as other:
            _, second = resolutions(other, PAGE)
        found = compare(("F32", file_type), picture, first, second)
        for part, one, two in zip((found.low, found.high), first, second, strict=True):
            assert (part.cells > 0).all()
            start, stop = one.picture or (0, 0)
            right = [1 - cosine(a, b) for a, b in zip(one.hidden, two.hidden, strict=True)]
            np.testing.assert_allclose(part.cells.ravel(), right[start:stop], atol=1e-12)
        means.append(found.high.cells.mean())
    assert 0 < means[0] < means[1] < 0.01


def test_the_farther_the_redder(plain: Embedder, tiny_files: Files) -> None:
    page = np.full((112, 168, 3), 255, np.uint8)
    picture, first = resolutions(plain, page)
    with Embedder(*tiny_files(MODEL.name, "Q8_0"), n_threads=1) as other:
        _, second = resolutions(other, page)
    found = compare(("a", "b"), picture, first, second)
    pixels = np.asarray(found.draw()).astype(int)
    limit = max(found.low.cells.max(), found.high.cells.max())
    side = 84  # 28 pixels, three times
    left = 6 * side + 12  # of the high resolution, beside the enlarged low one
    for (y, x), distance in np.ndenumerate(found.high.cells):
        red, green, _ = pixels[y * side + 40, left + x * side + 40]
        assert abs(green - 255 * (1 - 0.8 * distance / limit)) <= 1
        assert red >= 226


def test_a_picture_of_one_token(plain: Embedder) -> None:
    with pytest.raises(InputError, match="too small to compare at two resolutions"):
        resolutions(plain, PAGE, high_pixels=28 * 28)


def test_models_that_do_not_fit(plain: Embedder, embedder: Embedder, tiny_files: Files) -> None:
    picture, first = resolutions(plain, PAGE)
    _, with_prompt = resolutions(embedder, PAGE)
    with pytest.raises(InputError, match="one profile"):
        compare(("a", "b"), picture, first, with_prompt)
    with Embedder(*tiny_files("qwen25_head80"), n_threads=1) as other:
        _, wider = resolutions(other, PAGE)
    with pytest.raises(InputError, match="64 and 96 numbers"):
        compare(("a", "b"), picture, first, wider)


# --- on the command line ---


def run(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.fixture
def page(tmp_path: Path) -> Path:
    Image.fromarray(PAGE).save(tmp_path / "page.png")
    return tmp_path / "page.png"


@pytest.fixture
def models(tiny_files: Files) -> Callable[..., list[object]]:
    def words(*file_types: str) -> list[object]:
        pairs = [tiny_files(MODEL.name, file_type) for file_type in file_types]
        return [word for pair in pairs for word in ("--model", pair[0], "--mmproj", pair[1])]

    return words


def pixels_of(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as drawn:
        assert drawn.format == "PNG"
        return np.asarray(drawn)


def test_heatmap_command(
    models: Callable[..., list[object]],
    page: Path,
    projector: Path,
    embedder: Embedder,
    capsys: Capture,
) -> None:
    out = page.with_name("map.png")
    options = ["--projector", projector, "--profile", "jina-embeddings-v4", "--threads", 1]
    assert run("heatmap", page, QUERY, out, *models("F32"), *options) == 0
    text = capsys.readouterr().out
    right = heatmap(embedder, PAGE, QUERY)
    record = json.loads(out.with_suffix(".json").read_text("utf-8"))
    assert record.items() >= json.loads(json.dumps(right.record())).items()
    assert record["page"] == str(page)
    np.testing.assert_array_equal(pixels_of(out), np.asarray(right.draw()))
    assert f"MaxSim {right.score:.4f}" in text
    assert len(text.splitlines()) == len(right.tokens) + 2
    assert run("heatmap", page, QUERY, out, *models("F32"), *options, "--json") == 0
    assert json.loads(capsys.readouterr().out) == record


def test_compare_command(models: Callable[..., list[object]], page: Path, capsys: Capture) -> None:
    out = page.with_name("map.png")
    assert run("compare", page, *models("F32", "Q8_0"), out, "--threads", 1) == 0
    record = json.loads(out.with_suffix(".json").read_text())
    assert (record["low"]["grid"], record["high"]["grid"]) == ([2, 3], [4, 6])
    assert record["first"].endswith("F32-text.gguf")
    assert record["second"].endswith("Q8_0-text.gguf")
    assert 0 < record["high"]["mean"] < record["high"]["max"] < 0.01
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in shown[1:3]] == [["2", "x", "3"], ["4", "x", "6"]]
    red = pixels_of(out).astype(int)
    assert (red[..., 0] - red[..., 1]).max() > 100
    options = ["--low-pixels", 784, "--high-pixels", 4704, "--json"]
    assert run("compare", page, out, *models("F32", "F32"), *options) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["low"]["grid"], record["high"]["grid"]) == ([1, 1], [2, 3])
    assert record["high"]["max"] == 0


def test_a_page_of_a_pdf(
    models: Callable[..., list[object]],
    page: Path,
    projector: Path,
    embedder: Embedder,
    capsys: Capture,
) -> None:
    pdfium = pytest.importorskip("pypdfium2", reason="needs pip install pypdfium2")
    document, out = page.with_name("two.PDF"), page.with_name("map.png")
    pictures = [Image.fromarray(tiny.picture(8, 12, seed=seed)) for seed in (1, 2)]
    pictures[0].save(document, "PDF", save_all=True, append_images=pictures[1:])
    options = ["--projector", projector, "--profile", "jina-embeddings-v4", "--threads", 1]
    words = [*models("F32"), *options]
    for number, more in ((1, []), (1, ["--page", 1]), (2, ["--page", 2])):
        assert run("heatmap", document, QUERY, out, *words, *more) == 0
        with pdfium.PdfDocument(document) as opened:
            rendered = opened[number - 1].render(scale=150 / 72).to_pil()
        right = heatmap(embedder, rendered, QUERY)
        record = json.loads(out.with_suffix(".json").read_text())
        assert record.items() >= json.loads(json.dumps(right.record())).items()
        assert (record["page"], record["number"]) == (str(document), number)
    capsys.readouterr()
    assert run("heatmap", document, QUERY, out, *words, "--page", 3) == 1
    assert "two.PDF: there is no page 3; it has 2" in capsys.readouterr().err
    assert run("compare", document, *models("F32", "Q8_0"), out, "--page", 2) == 0
    assert json.loads(out.with_suffix(".json").read_text())["high"]["max"] > 0
    document.write_bytes(b"%PDF-1.4 and no more")
    capsys.readouterr()
    assert run("heatmap", document, QUERY, out, *words) == 1
    assert f"{document}: " in capsys.readouterr().err


def test_compare_takes_converted_folders(
    models: Callable[..., list[object]], page: Path, tiny_files: Files, capsys: Capture
) -> None:
    folders = []
    for file_type in ("F32", "Q8_0"):
        folder = page.parent / file_type
        folder.mkdir()
        names = {}
        for role, path in zip(("model", "mmproj"), tiny_files(MODEL.name, file_type), strict=True):
            names[role] = Path(shutil.copy(path, folder)).name
        (folder / "jmm.json").write_text(json.dumps({"format": 1, **names}))
        folders.append(folder)
    out = page.with_name("map.png")
    first, second = folders
    text, mmproj = tiny_files(MODEL.name, "Q8_0")
    records = []
    for words in (
        ["--model", first, "--model", second],
        ["--model", first, "--model", text, "--mmproj", mmproj],
        models("F32", "Q8_0"),
    ):
        assert run("compare", page, out, *words, "--threads", 1, "--json") == 0
        records.append(json.loads(capsys.readouterr().out))
    assert records[0]["first"] == str(first)
    assert [record["high"] for record in records] == [records[2]["high"]] * 3
    for words in (
        ["--model", first, "--model", second, "--mmproj", mmproj],
        ["--model", first, "--model", text],
        ["--model", first],
    ):
        with pytest.raises(SystemExit) as caught:
            run("compare", page, out, *words)
        assert caught.value.code == 2
        assert "of them folders, and" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (["heatmap", "page.png", QUERY, "no/map.png"], [], "there is no folder no"),
        (["heatmap", "page.png", QUERY, "./page.png"], [], "overwrite what is read"),
        (["compare", "page.png", "page.png"], ["second"], "overwrite what is read"),
        (["heatmap", "page.png", QUERY, "map.png"], [], "gives no token vectors"),
        (["heatmap", "page.png", "", "map.png"], ["projector"], "the text is empty"),
        (["heatmap", "none.png", "a", "map.png"], ["projector"], "none.png: cannot open"),
        (["compare", "none.png", "map.png"], ["second"], "none.png: cannot open"),
        (["compare", "page.png", "no/map.png"], ["second"], "there is no folder no"),
        (["compare", "page.png", "map.png"], ["reference"], "none: there is no config.json"),
    ],
)
def test_errors(
    command: list[str],
    options: list[str],
    message: str,
    models: Callable[..., list[object]],
    page: Path,
    projector: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(page.parent)
    words: list[object] = models(*["F32"] * (2 if "second" in options else 1))
    words += ["--projector", projector] if "projector" in options else []
    words += ["--reference", "none"] if "reference" in options else []
    assert run(*command, *words) == 1
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in page.parent.iterdir()] == ["page.png"]


ONE_MODEL = ["--model", "a", "--mmproj", "b", "--reference", "c"]


@pytest.mark.parametrize(
    "words",
    [
        ["heatmap", "page.png", "out.png"],
        ["heatmap", "page.png", "a", "out.png", "--values", "other"],
        ["compare", "page.png", "out.png"],
        ["compare", "page.png", "out.png", "--model", "a", "--mmproj", "b"],
        ["compare", "page.png", "out.png", *["--model", "a"] * 3, *["--mmproj", "b"] * 3],
        ["compare", "page.png", "out.png", *["--model", "a"] * 2, "--mmproj", "b"],
        ["heatmap", "page.png", QUERY, "map.gif"],
        ["heatmap", "page.png", QUERY, "map.png", "--max-pixels", "0"],
        ["compare", "page.png", "map.gif", *ONE_MODEL],
        ["compare", "page.png", "map.png", *ONE_MODEL, "--low-pixels", "0"],
        ["demo", "--top", "0"],
        ["demo", "--output", "map.gif"],
        ["heatmap", "page.png", "a", "out.png", "--page", "1"],
        ["heatmap", "page.pdf", "a", "out.png", "--page", "0"],
    ],
)
def test_wrong_usage(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*words)
    assert caught.value.code == 2
    assert "usage: jmm" in capsys.readouterr().err


# --- the demo ---


def test_demo(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from jmm.gallery import QUERIES, pictures

    monkeypatch.chdir(tmp_path)
    assert run("demo") == 0
    text = capsys.readouterr().out
    record = json.loads((tmp_path / "jmm-demo.json").read_text())
    with Embedder() as built_in:
        pages = built_in.encode_images([entry.picture for entry in pictures()])
        vectors = built_in.encode_query(list(QUERIES))
    assert [found["rank"] for found in record["queries"]] == [1] * len(QUERIES)
    for found, query, vector in zip(record["queries"], QUERIES, vectors, strict=True):
        scores = pages @ vector
        np.testing.assert_allclose(found["scores"], scores, atol=1e-5)
        assert (np.diff(np.array(found["scores"])[found["order"]]) <= 0).all()
        assert found["order"][found["rank"] - 1] == found["right"] == QUERIES[query]
        best = found["order"][0]
        mark = "*" if best == found["right"] else " "
        assert f"\n{query}\n{mark} {found['scores'][best]:+.4f}  {record['pictures'][best]}" in text
    assert pixels_of(tmp_path / "jmm-demo.png").shape == (12 + 9 * 228, 12 + 5 * 172, 3)
    shutil.copy("jmm-demo.png", "first.png")
    assert run("demo", "--json", "--output", "again.png") == 0
    assert json.loads(capsys.readouterr().out) == record
    assert Path("again.png").read_bytes() == Path("first.png").read_bytes()
