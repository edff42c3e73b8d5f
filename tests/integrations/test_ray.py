"""A real local Ray with two workers: a corrupt row, a worker that is killed, two stages."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jmm import Embedder, InputError, VisionEncoder, demo
from jmm.integrations import BatchEmbedder, BatchVisionEncoder, VisionService
from support import tiny

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray", reason="needs pip install 'jmm[ray]'")
pytest.importorskip("ray.data", reason="needs pip install 'jmm[ray]'")

N, DISTINCT, CORRUPT, FATAL = 2000, 40, 777, 1200
PICTURES = [tiny.picture(4 + 2 * (i % 3), 4 + 2 * (i % 2), i) for i in range(DISTINCT)]
LOAD = functools.partial(Embedder, n_threads=1)


def png(picture: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200 * 2**20
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def right() -> Any:
    """Pooled and token vectors of `PICTURES`."""
    with LOAD() as embedder:
        return embedder.encode_images(PICTURES, multi_vector="both")


def table(n: int, corrupt: int) -> Any:
    files = [png(picture) for picture in PICTURES]
    rows = [{"id": i, "image": files[i % DISTINCT]} for i in range(n)]
    rows[corrupt]["image"] = files[0][:40]
    return ray.data.from_items(rows, override_num_blocks=20)


def check(rows: list[dict[str, Any]], n: int, corrupt: int, right: Any) -> None:
    rows.sort(key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(n))
    for row in rows:
        if row["id"] == corrupt:
            continue
        assert row["error"] == ""
        item = row["id"] % DISTINCT
        np.testing.assert_array_equal(row["vector"], right.pooled[item])
        if "tokens" in row:
            np.testing.assert_array_equal(row["tokens"], right.tokens[item])
    bad = rows[corrupt]
    assert np.isnan(bad["vector"]).all()
    assert "tokens" not in bad or bad["tokens"].shape == (0, right.tokens.dim)
    with LOAD() as embedder, pytest.raises(InputError) as caught:
        embedder.encode_images(png(PICTURES[0])[:40])
    assert bad["error"] == caught.value.message


def test_a_killed_worker_loses_no_row(right: Any, tmp_path: Path) -> None:
    marker = tmp_path / "killed"

    class Mortal(BatchEmbedder):
        """Is killed as by the kernel, once, with a batch in its hands."""

        def __call__(self, batch: Any) -> Any:
            if FATAL in batch["id"] and not marker.exists():
                marker.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            return {**super().__call__(batch), "pid": np.full(len(batch["id"]), os.getpid())}

    rows = (
        table(N, CORRUPT)
        .map_batches(
            Mortal,
            fn_constructor_kwargs={"load": LOAD, "multi_vector": "both", "drop": ["image"]},
            batch_size=32,
            compute=ray.data.ActorPoolStrategy(size=2),
        )
        .take_all()
    )
    check(rows, N, CORRUPT, right)
    assert rows[FATAL]["pid"] != int(marker.read_text())


def test_two_pools(right: Any) -> None:
    """Towers and language models apart, one worker each here."""
    model, mmproj = demo.paths()
    rows = (
        table(200, 77)
        .map_batches(
            BatchVisionEncoder,
            fn_constructor_kwargs={
                "load": functools.partial(VisionEncoder, mmproj, n_threads=1),
                "drop": ["image"],
            },
            batch_size=32,
            compute=ray.data.ActorPoolStrategy(size=1),
        )
        .map_batches(
            BatchEmbedder,
            fn_constructor_kwargs={
                "load": functools.partial(Embedder, model, mmproj, load_vision=False, n_threads=1),
                "column": "vision_tokens",
                "kind": "vision_tokens",
                "drop": ["vision_tokens"],
            },
            batch_size=32,
            compute=ray.data.ActorPoolStrategy(size=1),
        )
        .take_all()
    )
    check(rows, 200, 77, right)


def test_a_service_as_an_actor(right: Any) -> None:
    model, mmproj = demo.paths()
    service = (
        ray.remote(VisionService)
        .options(max_concurrency=8)
        .remote(functools.partial(VisionEncoder, mmproj, n_threads=1))
    )
    answers = [service.encode.remote(png(picture)) for picture in PICTURES]
    refused = service.encode.remote(b"no picture")
    with Embedder(model, mmproj, load_vision=False, n_threads=1) as embedder:
        vectors = embedder.encode_images(ray.get(answers))
    np.testing.assert_array_equal(vectors, right.pooled)
    with pytest.raises(InputError, match="no picture that Pillow knows"):
        ray.get(refused)
    ray.kill(service)
