"""The page itself in headless Chromium: what a user sees, drops and types."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jmm import Embedder, inspect
from jmm.browse import Library, Server
from jmm.inspect import drawing
from jmm.search import Index
from support import search
from support.browse import serving

pytestmark = pytest.mark.slow

playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
pytest.importorskip("lancedb", reason="needs pip install 'jmm[search]'")
pytest.importorskip("pypdfium2", reason="needs pip install 'jmm[search]'")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TIMEOUT_MS = 60_000

QUERY = "rain at night"
PATHS = {"picture": "deep.png", "pdf": "report.pdf", "text": "<b>notes<b>.txt"}
MARKUP = '<img src=x onerror="document.title=1"> Rain <b>all</b> night.'


class Counting(Library):
    """Remembers which pictures it was asked for."""

    asked: list[tuple[str, int, int]]

    def picture(self, content: str, number: int, side: int) -> bytes:
        self.asked.append((content, number, side))
        return super().picture(content, number, side)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("needs Debian's package chromium")
    with playwright.sync_playwright() as driver:
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
        launched = driver.chromium.launch(**options, timeout=2 * TIMEOUT_MS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    path = search.write_projector(tmp_path_factory.mktemp("projector") / "projector.gguf")
    with Embedder(projector=path, n_threads=1) as loaded:
        yield loaded


def write(folder: Path) -> Path:
    folder.mkdir()
    for seed in range(6):
        search.picture(seed).resize((280, 168)).save(folder / f"{seed}.png")
    Image.new("RGB", (168, 336), "teal").save(folder / PATHS["picture"])
    search.save_pdf(folder / PATHS["pdf"], [7, 8])
    (folder / PATHS["text"]).write_text(MARKUP, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("browse") / "files")


@pytest.fixture(scope="module")
def library(files: Path, embedder: Embedder) -> Iterator[Counting]:
    with Index(files.parent / "index", embedder) as index, Counting(index) as made:
        index.add(files)
        made.asked = []
        yield made


@pytest.fixture(scope="module")
def server(library: Library) -> Iterator[Server]:
    with serving(library) as running:
        yield running


@pytest.fixture
def new_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """``new_page(server, width=1280, scheme="light")``: the loaded page, which must be quiet."""
    contexts = []
    noise: list[str] = []

    def make(server: Server, width: int = 1280, scheme: str = "light", address: str = "") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("console", lambda line: _is_bad(line) and noise.append(line.text))
        page.on("request", lambda one: one.url.startswith((server.url, f"blob:{server.url}"))
                or noise.append(one.url))  # fmt: skip
        page.goto(server.url + address)
        until(page, "document.getElementById('status').textContent != ''")
        return page

    yield make
    for context in contexts:
        context.close()
    assert noise == []


def _is_bad(line: Any) -> bool:
    # pages whose files are gone are answered by a status, which the browser logs
    return line.type == "error" and "Failed to load resource" not in line.text


def until(page: Any, expression: str, argument: Any = None) -> None:
    """Waits until it is true; the page's policy forbids Playwright's own way."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while not page.evaluate(expression, argument):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(20)


def ask(page: Any, query: str = QUERY) -> None:
    page.fill("#query", query)
    page.keyboard.press("Enter")
    until(page, "document.getElementById('status').textContent.includes('best first')")


def names(page: Any) -> list[str]:
    return list(page.locator(".card .name").all_inner_texts())


def open_card(page: Any, name: str) -> None:
    page.locator(".card", has=page.locator(".name", has_text=name)).first.click()
    page.wait_for_selector("#viewer[open]")


def wait_for(page: Any, selector: str, text: str) -> None:
    page.locator(selector, has_text=text).first.wait_for()


def drop(page: Any, name: str, data: bytes | int, kind: str) -> None:
    """Drops a file on the page, as a file manager would: some bytes, or so many zeros."""
    transfer = page.evaluate_handle(
        """([name, data, kind]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(data)], name, {type: kind}));
            return transfer;
        }""",
        [name, data if isinstance(data, int) else list(data), kind],
    )
    page.dispatch_event("body", "dragenter", {"dataTransfer": transfer})
    assert page.is_visible("#drop")
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})
    assert not page.is_visible("#drop")


def loaded(page: Any) -> None:
    """All thumbnails are there; those below the window are loaded when they come into view."""
    for image in page.locator(".shot img").all():
        image.scroll_into_view_if_needed()
        until(page, "image => image.complete && image.naturalWidth > 0", image.element_handle())


# --- search ---


def test_search(new_page: Callable[..., Any], server: Server, library: Counting) -> None:
    page = new_page(server)
    assert "10 pages in index" in page.inner_text("#status")
    ask(page)
    hits = library.search(QUERY)
    assert names(page) == [hit["name"] for hit in hits]
    scores = page.locator(".card .score").all_inner_texts()
    assert scores == [f"{hit['score']:.4f}" for hit in hits]
    places = page.locator(".card .where").all_inner_texts()
    words = {"picture": "", "pdf": "page {}", "text": "passage {}"}
    assert places == [words[hit["kind"]].format(hit["page"]) for hit in hits]
    loaded(page)
    assert page.locator(".passage").inner_text() == MARKUP
    assert page.title() == f"{QUERY} – jmm"
    assert page.inner_text("#status") == "10 pages, best first"


def test_thumbnails_are_kept_by_the_browser(
    new_page: Callable[..., Any], server: Server, library: Counting
) -> None:
    page = new_page(server)
    ask(page)
    loaded(page)
    library.asked.clear()
    ask(page, "sun")
    loaded(page)
    page.reload()
    until(page, "query?.text === 'sun'")
    loaded(page)
    assert library.asked == []


def test_back_and_a_link(new_page: Callable[..., Any], server: Server) -> None:
    page = new_page(server, address="?q=sun%20%26%20moon")
    until(page, "hits.length === 10")
    assert page.input_value("#query") == "sun & moon"
    ask(page)
    page.go_back()
    until(page, "document.getElementById('query').value === 'sun & moon'")
    until(page, "document.title.startsWith('sun & moon')")


def test_an_empty_result(new_page: Callable[..., Any], tmp_path: Path, embedder: Embedder) -> None:
    with (
        Index(tmp_path / "index", embedder) as index,
        Library(index) as empty,
        serving(empty) as server,
    ):
        page = new_page(server)
        assert "index has no pages yet" in page.inner_text("#status")
        page.fill("#query", QUERY)
        page.keyboard.press("Enter")
        until(page, "document.title.startsWith('rain')")
        assert "index has no pages yet" in page.inner_text("#status")
        assert page.locator(".card").count() == 0


def test_the_server_is_gone(new_page: Callable[..., Any], server: Server) -> None:
    page = new_page(server)
    ask(page)
    found, address = names(page), page.url
    page.route("**/search", lambda route: route.abort("connectionrefused"))
    page.fill("#query", "sun")
    page.keyboard.press("Enter")
    wait_for(page, "#status.problem", "No answer: is `jmm browse` still running?")
    assert names(page) == found, "what was found before stays"
    assert (page.url, page.input_value("#query")) == (address, "sun")
    # and its heat maps are of the query that found it
    with page.expect_request("**/heat/**") as asked:
        open_card(page, "3.png")
    assert asked.value.post_data_json == {"query": QUERY}


# --- the start ---


def test_the_start_shows_what_was_written_last(
    new_page: Callable[..., Any], server: Server, library: Counting
) -> None:
    page = new_page(server)
    page.wait_for_selector(".card")
    assert names(page) == [hit["name"] for hit in library.recent()]
    assert len(names(page)) == 9, "a PDF's first page stands for it"
    loaded(page)
    assert page.locator(".passage").inner_text() == MARKUP
    assert "".join(page.locator(".card .score").all_inner_texts()) == ""
    open_card(page, "3.png")
    page.wait_for_selector("#stage:not([hidden])")
    assert page.inner_text("#note") == "What matches is drawn here after a search."
    assert not page.is_visible("#score")
    assert not page.is_visible("#layers")
    page.keyboard.press("Escape")
    until(page, "location.hash === ''")
    # nothing asked for leads back to it
    ask(page)
    page.fill("#query", "  ")
    page.keyboard.press("Enter")
    until(page, "query === null")
    assert names(page) == [hit["name"] for hit in library.recent()]
    assert page.url == server.url
    page.go_back()
    until(page, f"query?.text === '{QUERY}'")
    assert page.input_value("#query") == QUERY


def test_how_many_there_are(
    new_page: Callable[..., Any], library: Counting, embedder: Embedder, files: Path
) -> None:
    with (
        Index(files.parent / "index", embedder) as index,
        Library(index, top=3) as few,
        serving(few) as server,
    ):
        page = new_page(server)
        page.fill("#query", QUERY)
        page.keyboard.press("Enter")
        wait_for(page, "#status", "3 best of 10 pages")
        page.locator(".card").nth(1).click()
        wait_for(page, "#score", "rank 2 of 10 pages")


# --- an open page and the address ---


def test_back_closes_a_page(new_page: Callable[..., Any], server: Server) -> None:
    page = new_page(server)
    ask(page)
    found, address = names(page), page.url
    open_card(page, "3.png")
    first = page.url
    assert first.startswith(f"{address}#picture-")
    page.keyboard.press("ArrowRight")
    until(page, "address => location.href !== address", first)
    second, shown = page.url, page.inner_text("#viewer-name")
    page.go_back()
    page.wait_for_selector("#viewer", state="hidden")
    assert (names(page), page.url) == (found, address)
    page.go_forward()
    page.wait_for_selector("#viewer[open]")
    assert (page.url, page.inner_text("#viewer-name")) == (second, shown)
    # Esc is the same as Back: the next Back leads to the start
    page.keyboard.press("Escape")
    until(page, "address => location.href === address", address)
    assert not page.is_visible("#viewer")
    page.go_back()
    until(page, "query === null")
    assert page.url == server.url
    # from a page to another query's
    page.go_forward()
    until(page, f"query?.text === '{QUERY}'")


def test_the_address_of_a_page(new_page: Callable[..., Any], server: Server) -> None:
    page = new_page(server)
    ask(page)
    open_card(page, "3.png")
    address, shown = page.url.removeprefix(server.url), page.inner_text("#viewer-name")
    page.reload()
    page.wait_for_selector("#viewer[open]")
    assert page.inner_text("#viewer-name") == shown
    other = new_page(server, address=address)
    other.wait_for_selector("#viewer[open]")
    assert other.inner_text("#viewer-name") == shown
    other.wait_for_selector("#layers:not([hidden])")
    other.keyboard.press("Escape")
    until(other, "location.hash === ''")
    assert not other.is_visible("#viewer")
    assert names(other) == names(page)
    unknown = new_page(server, address=f"?q=sun#picture-{'0' * 32}/1")
    wait_for(unknown, "#status", "The page of this address is not among these.")
    assert unknown.locator(".card").count() == 10


def test_esc_and_the_next_page_at_once(new_page: Callable[..., Any], server: Server) -> None:
    """The step back that Esc begins is over before the next page takes its place."""
    page = new_page(server)
    ask(page)
    address = page.url
    for name in ("3.png", "4.png", "1.png"):
        open_card(page, name)
        page.keyboard.press("Escape")
    open_card(page, "2.png")
    wait_for(page, "#viewer-name", "2.png")
    page.go_back()
    page.wait_for_selector("#viewer", state="hidden")
    assert page.url == address
    page.go_back()
    until(page, "query === null")


def test_a_picture_that_comes_late(new_page: Callable[..., Any], server: Server) -> None:
    held: list[Any] = []
    page = new_page(server)
    page.route("**/picture/**", lambda route: held.append(route))
    ask(page)
    open_card(page, "3.png")
    while not held:
        page.wait_for_timeout(20)
    page.evaluate("open(hits.findIndex((hit) => hit.kind === 'text'))")
    wait_for(page, "#passage", "Rain <b>all</b> night.")
    with suppress(playwright.Error):  # the browser may have given it up
        held[0].continue_()
    page.wait_for_timeout(300)
    assert not page.is_visible("#stage")
    assert page.is_visible("#passage")


# --- heat maps ---


def shown(page: Any) -> Image.Image:
    return Image.open(io.BytesIO(page.locator("#stage").screenshot())).convert("RGB")


def test_heat_map(
    new_page: Callable[..., Any], server: Server, embedder: Embedder, files: Path
) -> None:
    right = inspect.heatmap(embedder, files / "3.png", QUERY)
    height, width = right.contributions.shape
    page = new_page(server)
    ask(page)
    open_card(page, "3.png")
    page.wait_for_selector("#layers:not([hidden])")
    page.wait_for_selector("#stage:not([hidden])")
    for layer in ("similarities", "contributions"):
        page.click(f"[data-layer={layer}]")
        values = getattr(right, layer)
        drawn = page.evaluate(
            """() => {
                const canvas = document.getElementById("heat");
                const context = canvas.getContext("2d");
                return [canvas.width, canvas.height,
                        [...context.getImageData(0, 0, canvas.width, canvas.height).data]];
            }"""
        )
        assert drawn[:2] == [width, height]
        pixels = np.array(drawn[2]).reshape(height, width, 4)
        wanted = np.abs(values) / np.abs(values).max() * drawing.OPACITY * 255
        np.testing.assert_allclose(pixels[..., 3], wanted, atol=1)
        strong = pixels[..., 3] > 64
        assert strong.any()
        assert (pixels[strong & (values > 0)][:, 0] > 200).all()
        assert (pixels[strong & (values < 0)][:, 2] > 200).all()
        # the whole drawing, page and map, against that of `jmm heatmap`
        picture = drawing.heat(right.picture, values).resize((width, height), Image.Resampling.BOX)
        screen = shown(page).resize((width, height), Image.Resampling.BOX)
        differences = np.abs(np.asarray(picture, np.float64) - np.asarray(screen, np.float64))
        assert differences.mean() < 8
    assert f"{right.outside:.4f} comes from outside" in page.inner_text("#note")
    page.click('[data-layer=""]')
    plain = np.asarray(shown(page).resize((8, 8)), np.float64)
    page_itself = np.asarray(Image.open(files / "3.png").resize((8, 8)), np.float64)
    assert np.abs(plain - page_itself).mean() < 8


def test_tokens_show_their_cells(
    new_page: Callable[..., Any], server: Server, embedder: Embedder, files: Path
) -> None:
    right = inspect.heatmap(embedder, files / "3.png", QUERY)
    height, width = right.contributions.shape
    page = new_page(server)
    ask(page)
    open_card(page, "3.png")
    page.wait_for_selector("#stage:not([hidden])")
    page.wait_for_selector("#tokens button")
    buttons = page.locator("#tokens button").all()
    tokens = [token for token in right.tokens if token.text]
    assert [button.text_content() for button in buttons] == [token.text for token in tokens]
    inside = next(i for i, token in enumerate(tokens) if token.cell is not None)
    buttons[inside].hover()
    stage, cell = page.locator("#stage").bounding_box(), page.locator("#cell").bounding_box()
    y, x = tokens[inside].cell or (0, 0)
    assert cell["x"] == pytest.approx(stage["x"] + x / width * stage["width"], abs=1)
    assert cell["y"] == pytest.approx(stage["y"] + y / height * stage["height"], abs=1)
    assert cell["width"] == pytest.approx(stage["width"] / width, abs=1)
    page.hover("#viewer-name")
    assert not page.is_visible("#cell")


def test_heat_maps_of_pdfs_and_texts(new_page: Callable[..., Any], server: Server) -> None:
    page = new_page(server)
    ask(page)
    open_card(page, PATHS["pdf"])
    page.wait_for_selector("#layers:not([hidden])")
    page.keyboard.press("Escape")
    open_card(page, PATHS["text"])
    wait_for(page, "#note", "Heat maps are drawn over pictures; this is a text.")
    assert page.inner_text("#passage") == MARKUP
    assert not page.is_visible("#layers")
    assert not page.is_visible("#stage")


def test_a_model_without_token_vectors(
    new_page: Callable[..., Any],
    files: Path,
    tmp_path: Path,
    tiny_files: Callable[..., tuple[Path, Path]],
) -> None:
    with (
        Embedder(*tiny_files("qwen25_small"), n_threads=1) as plain,
        Index(tmp_path / "index", plain) as index,
        Library(index) as library,
        serving(library) as server,
    ):
        index.add(files)
        page = new_page(server)
        ask(page)
        open_card(page, "3.png")
        wait_for(page, "#note", "No heat map: the model of this index gives one vector per page")
        page.wait_for_selector("#stage:not([hidden])")
        assert not page.is_visible("#layers")


# --- pictures as queries ---


def test_drop(new_page: Callable[..., Any], server: Server, library: Counting, files: Path) -> None:
    data = (files / PATHS["picture"]).read_bytes()
    page = new_page(server)
    ask(page)
    drop(page, "query.png", data, "image/png")
    until(page, f"hits.length && hits[0].name === '{PATHS['picture']}'")
    assert names(page) == [hit["name"] for hit in library.search(data)]
    assert page.input_value("#query") == ""
    until(page, "document.getElementById('chip-picture').naturalWidth === 168")
    open_card(page, PATHS["picture"])
    page.wait_for_selector("#layers:not([hidden])")
    assert page.locator("#tokens button").count() == 0, "a picture's tokens have no texts"
    page.go_back()
    page.wait_for_selector("#viewer", state="hidden")
    # Back and forth: the picture is kept
    page.go_back()
    until(page, f"query?.text === '{QUERY}'")
    assert not page.is_visible("#chip")
    page.go_forward()
    until(page, f"query?.picture && hits[0].name === '{PATHS['picture']}'")
    assert page.is_visible("#chip")
    page.click("#chip-remove")
    until(page, "query === null")
    assert not page.is_visible("#chip")
    assert page.url == server.url


def test_choose(new_page: Callable[..., Any], server: Server, files: Path) -> None:
    page = new_page(server)
    with page.expect_file_chooser() as chosen:
        page.click("#choose")
    chosen.value.set_files(files / PATHS["picture"])
    until(page, "query?.picture && hits.length === 10")
    assert names(page)[0] == PATHS["picture"]
    # a format that the browser does not show is a query all the same
    tiff = io.BytesIO()
    Image.new("RGB", (168, 336), "teal").save(tiff, "TIFF")
    drop(page, "query.tiff", tiff.getvalue(), "")
    wait_for(page, "#chip-name", "query.tiff")
    until(page, "document.getElementById('status').textContent.includes('best first')")
    assert names(page)[0] == PATHS["picture"]


def test_what_is_no_picture(new_page: Callable[..., Any], server: Server, files: Path) -> None:
    page = new_page(server)
    ask(page)
    found = names(page)
    open_card(page, "3.png")
    drop(page, "notes $& one.txt", b"a text", "text/plain")
    wait_for(page, "#status.problem", "notes $& one.txt: no picture that Pillow knows")
    assert not page.is_visible("#viewer")
    assert not page.is_visible("#chip")
    assert names(page) == found, "what was found before stays"
    assert page.input_value("#query") == QUERY
    drop(page, "report.pdf", (files / PATHS["pdf"]).read_bytes(), "application/pdf")
    wait_for(page, "#status.problem", "report.pdf: this is a PDF; search by a picture of one of")
    page.evaluate("about.most_picture_bytes = 2 ** 20")
    drop(page, "large.png", 2**20 + 1, "image/png")
    wait_for(page, "#status.problem", "large.png is larger than 1 MiB.")


# --- files that are not as they were ---


def test_broken_and_vanished_files(
    new_page: Callable[..., Any], tmp_path: Path, embedder: Embedder
) -> None:
    files = write(tmp_path / "files")
    with (
        Index(tmp_path / "index", embedder) as index,
        Library(index) as library,
        serving(library) as server,
    ):
        index.add(files)
        (files / "1.png").unlink()
        (files / "2.png").write_bytes(b"broken")
        (files / PATHS["text"]).unlink()
        page = new_page(server)
        ask(page)
        problems = {
            "1.png": "the file is gone",
            "2.png": "the file has changed since it was indexed",
            PATHS["text"]: "the file is gone",
        }
        for name, why in problems.items():
            card = page.locator(".card", has=page.locator(".name", has_text=name))
            card.scroll_into_view_if_needed()
            card.locator(".problem", has_text=why).wait_for()
            card.click()
            wait_for(page, "#problem", why)
            assert not page.is_visible("#stage")
            if name != PATHS["text"]:
                wait_for(page, "#note.problem", f"No heat map: {why}")
            page.keyboard.press("Escape")
        open_card(page, "3.png")
        page.wait_for_selector("#stage:not([hidden])")
        assert not page.is_visible("#problem")


# --- keys ---


def focused(page: Any) -> str:
    return str(
        page.evaluate(
            "document.activeElement.id || document.activeElement.querySelector('.name')?.innerText"
        )
    )


def test_keyboard(new_page: Callable[..., Any], server: Server) -> None:
    page = new_page(server)
    assert focused(page) == "query"
    ask(page)
    found = names(page)
    tops = page.evaluate("cards().map((card) => card.getBoundingClientRect().top)")
    n_columns = tops.count(tops[0])
    assert 1 < n_columns < len(found)
    steps = [("ArrowDown", 0), ("ArrowRight", 1), ("ArrowDown", 1 + n_columns), ("ArrowUp", 1)]
    for key, index in [*steps, ("ArrowLeft", 0)]:
        page.keyboard.press(key)
        assert focused(page) == found[index]
    page.keyboard.press("ArrowUp")
    assert focused(page) == "query"
    page.keyboard.press("ArrowDown")
    for _ in range(len(found) + 2):
        page.keyboard.press("ArrowRight")
    assert focused(page) == found[-1]
    page.keyboard.press("Enter")
    page.wait_for_selector("#viewer[open]")
    assert page.is_disabled("#next")
    page.keyboard.press("ArrowLeft")
    assert found[-2] in page.inner_text("#viewer-name")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Escape")
    assert not page.is_visible("#viewer")
    assert focused(page) == found[-2]
    page.keyboard.press("/")
    assert focused(page) == "query"
    assert page.input_value("#query") == QUERY
    page.keyboard.type("a/b")
    assert page.input_value("#query") == "a/b"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    assert focused(page) == "query"


# --- looks ---


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_widths(width: int, new_page: Callable[..., Any], server: Server) -> None:
    page = new_page(server, width=width)
    ask(page)
    fits = "document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(fits)
    lefts = page.evaluate("cards().map((card) => card.getBoundingClientRect().left)")
    assert len(set(lefts)) == {320: 2, 390: 2, 1280: 6}[width]
    open_card(page, "3.png")
    page.wait_for_selector("#layers:not([hidden])")
    assert page.evaluate(fits)
    for selector in ("#viewer", "#close", "#previous", "#next", "#stage", "#layers"):
        box = page.locator(selector).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width, selector
    view = page.evaluate("(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])"
                         "(document.querySelector('.view'))")  # fmt: skip
    assert view[0] <= view[1]
    page.click("#close")
    assert not page.is_visible("#viewer")


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2.2 defines it."""
    parts = np.array([float(part) for part in colour[4:-1].split(",")]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_light_and_dark(new_page: Callable[..., Any], server: Server) -> None:
    papers = {}
    for scheme in ("light", "dark"):
        page = new_page(server, scheme=scheme)
        ask(page)
        style = "(selector) => getComputedStyle(document.querySelector(selector))"
        paper = page.evaluate(f"({style})('body').backgroundColor")
        papers[scheme] = luminance(paper)
        for selector in ("body", "#status", ".score", ".name", "#note.problem, #problem"):
            ink = luminance(page.evaluate(f"({style})('{selector}').color"))
            light, dark = max(ink, papers[scheme]), min(ink, papers[scheme])
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (scheme, selector)
    assert papers["light"] > 0.9
    assert papers["dark"] < 0.1
