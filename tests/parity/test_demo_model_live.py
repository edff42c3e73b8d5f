"""The demo model's own torch code and its exported files against transformers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jmm import Embedder
from support import tiny
from support.sequences import cosine

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from demo_model import (  # noqa: E402
    export,
    muon,
    network,
    pictures,
    training,
    vocabulary,
    world,
)

TEXT = "the words river lamp in red on a blue background"


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(11)
    vocab = vocabulary.load()
    markers = (vocab.id("<|vision_start|>"), vocab.id("<|vision_end|>"))
    result = network.DemoModel(markers=markers)
    with torch.no_grad():
        for value in result.parameters():
            if value.ndim == 1:
                value.add_(0.2 * torch.randn_like(value))
    return result.eval()


def picture() -> np.ndarray:
    rng = np.random.default_rng(2)
    return pictures.draw(world.sample(rng, "word"), rng)


def test_hidden_rows_are_those_of_transformers(model: Any) -> None:
    vocab, pixels = vocabulary.load(), picture()
    reference = export.reference_model(model)
    (text,) = vocabulary.encode([TEXT])
    assert text == reference.tokenize(TEXT).tolist()
    ids = [vocab.id("<|vision_start|>"), *[vocab.id("<|image_pad|>")] * 9]
    ids = np.array([*ids, vocab.id("<|vision_end|>"), *text])
    expected = reference.hidden(ids, tiny.patches(pixels), [(6, 6)])
    mean, std = torch.tensor(tiny.IMAGE_MEAN), torch.tensor(tiny.IMAGE_STD)
    with torch.inference_mode():
        image, _ = model.vision(network.to_patches(torch.tensor(pixels[None]), mean, std))
        both = model.pictures(image, torch.tensor([text])).hidden[0].numpy()
        alone = model.pictures(image).hidden[0].numpy()
        padded = torch.tensor([[*text, 0, 0]])
        words = model.texts(padded, (padded != 0).float()).hidden[0, : len(text)].numpy()
    assert np.abs(both - expected).max() < 1e-5
    assert np.abs(alone - expected[:11]).max() < 1e-5
    assert np.abs(words - reference.hidden(np.array(text))).max() < 1e-5


def test_the_written_files_give_the_vectors_of_the_trained_model(
    model: Any, tmp_path: Path
) -> None:
    files = export.write_gguf(model, tmp_path, "F16")
    trainer = training.Trainer(training.Settings(), tmp_path)
    trainer.model = model
    with Embedder(*files) as embedder:
        text, image = embedder.encode_query(TEXT), embedder.encode_images(picture())
        tokens = embedder.encode_query(TEXT, multi_vector=True)
        large = embedder.encode_images(picture().repeat(5, 0).repeat(5, 1))
    vectors, rows = trainer.embed_texts([TEXT])
    assert cosine(text, vectors[0]) > 0.9999
    assert np.abs(np.asarray(tokens) - rows[0]).max() < 1e-3
    expected = trainer.embed_pictures(picture()[None]).vectors[0]
    assert cosine(image, expected) > 0.9999
    # Five times as large: brought back to the size that the model knows.
    assert cosine(large, expected) > 0.98


def test_muon_makes_oblong_and_square_matrices_orthogonal() -> None:
    for shape in ((24, 24), (24, 60), (60, 24), (24, 36)):
        matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
        u, _, v = np.linalg.svd(matrix.numpy(), full_matrices=False)
        result = muon.orthogonalised(matrix).numpy()
        values = np.linalg.svd(result)[1]
        assert values.min() > 0.6
        assert values.max() < 1.3
        assert (np.diag(u.T @ result @ v.T) > 0.6).all()


def test_a_resumed_training_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    settings = replace(training.Settings(), steps=3, batch=4)

    def trained(folder: str, stops: tuple[int, ...]) -> dict[str, Any]:
        (tmp_path / folder).mkdir()
        for stop in stops:
            trainer = training.Trainer(settings, tmp_path / folder)
            assert trainer.resume() == (stop != stops[0])
            while trainer.step < stop:
                trainer.train_step()
            trainer.save()
        return trainer.model.state_dict()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    whole, halves = trained("whole", (3,)), trained("halves", (2, 3))
    torch.set_num_threads(threads)
    for name, value in whole.items():
        assert torch.equal(value, halves[name]), name


def test_a_training_goes_on_with_the_settings_that_it_began_with(tmp_path: Path) -> None:
    settings = replace(training.Settings(), steps=3, batch=4, twins=(0.1, 0.2))
    training.Trainer(settings, tmp_path).save()
    assert training.load_trainer(tmp_path).settings == settings
    assert training.Trainer(settings, tmp_path).resume()
    for other, told in (
        (replace(settings, steps=4), "begun with steps=3, not 4; go on"),
        (replace(settings, seed=7, batch=8), "begun with seed=5, not 7, batch=4, not 8"),
        (replace(settings, shape=network.Shape(layers=3)), "begun with shape="),
    ):
        with pytest.raises(ValueError, match=told):
            training.Trainer(other, tmp_path).resume()
    with pytest.raises(FileNotFoundError, match="train first"):
        training.load_trainer(tmp_path / "none")
