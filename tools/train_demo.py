"""Trains the built-in model on pictures that it draws itself.

python tools/train_demo.py vocabulary            writes tools/demo_model/merges.txt
python tools/train_demo.py train FOLDER          trains, or goes on; state.pt, log.jsonl in FOLDER
python tools/train_demo.py export FOLDER INTO    the trained model, for transformers and for jmm
python tools/train_demo.py measure M.json F16 TEXT MMPROJ   held-out numbers through jmm
python tools/train_demo.py measure M.json PyTorch FOLDER    the same in torch
python tools/train_demo.py card M.json           puts the numbers into the model card

Needs the parity extra and Debian's fonts-dejavu-core, fonts-liberation, fonts-freefont-ttf and
fonts-lato.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from demo_model import captions, vocabulary, world

CARD = Path(__file__).parent.parent / "src" / "jmm" / "demo" / "CARD.md"


def write_vocabulary() -> None:
    """Learns the merges from seeded captions of training scenes."""
    rng = np.random.default_rng(0)
    texts = []
    for i in range(60_000):
        scene = world.sample(rng, world.KINDS[i % len(world.KINDS)], "train")
        texts.append(captions.describe(scene, rng, full=bool(i % 2)).text)
    for values in world.VALUES.values():
        texts += [str(value) for value in values] * 200
    vocabulary.MERGES.write_text("\n".join(vocabulary.learn(texts)) + "\n", "utf-8")


def train(folder: Path, steps: int, workers: int) -> None:
    """Trains, from the start or from the last state."""
    from demo_model import workers as working

    folder.mkdir(parents=True, exist_ok=True)
    working.run(workers, folder / "rendezvous", partial(train_worker, folder, steps))


def train_worker(folder: Path, steps: int, _: int) -> None:
    """One process of a training."""
    from demo_model.training import Settings, Trainer

    trainer = Trainer(Settings(steps=steps), folder)
    trainer.resume()
    trainer.run(report_every=20, save_every=150, evaluate_every=450)


def export(folder: Path, into: Path) -> None:
    """Writes the checkpoint folder and the GGUF files of the state in ``folder``."""
    from demo_model import export as exporting
    from demo_model.training import load_model

    model = load_model(folder)
    exporting.write_transformers(model, into / "transformers")
    exporting.write_projector(model, into / "projector.gguf")
    for file_type in ("F32", "F16", "Q8_0"):
        for path in exporting.write_gguf(model, into / file_type, file_type):
            print(f"{path.relative_to(into)}: {path.stat().st_size} bytes")


def measure(into: Path, name: str, files: list[Path], seed: int, n: int) -> None:
    """Adds held-out numbers to ``into``: of two GGUF files, or of a state's folder."""
    from demo_model import evaluation

    if len(files) == 1:
        from demo_model.training import Trainer, load_trainer

        trainer: Trainer = load_trainer(files[0])
        result = evaluation.measure(trainer.encoder(), seed, n)
    else:
        from jmm import Embedder

        with Embedder(*files) as embedder:
            result = evaluation.measure(evaluation.encoder_of(embedder), seed, n)
    known = json.loads(into.read_text("utf-8")) if into.exists() else {}
    into.write_text(json.dumps({**known, name: result}, indent=1) + "\n", "utf-8")


def write_card(measured: Path, card: Path) -> None:
    """Puts the numbers into the model card."""
    from demo_model import card as cards

    numbers = json.loads(measured.read_text("utf-8"))
    card.write_text(cards.fill(card.read_text("utf-8"), numbers), "utf-8")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("vocabulary")
    command = commands.add_parser("train")
    command.add_argument("folder", type=Path)
    command.add_argument("--steps", type=int, default=1500)
    command.add_argument("--workers", type=int, default=2)
    command = commands.add_parser("export")
    command.add_argument("folder", type=Path)
    command.add_argument("into", type=Path)
    command = commands.add_parser("measure")
    command.add_argument("into", type=Path)
    command.add_argument("name")
    command.add_argument("files", type=Path, nargs="+", help="TEXT MMPROJ, or a state's folder")
    # not the training's seed, which the held-out numbers were watched with
    command.add_argument("--seed", type=int, default=6)
    command.add_argument("--n", type=int, default=100)
    command = commands.add_parser("card")
    command.add_argument("measured", type=Path)
    command.add_argument("--card", type=Path, default=CARD)
    options = vars(parser.parse_args())
    run = {
        "vocabulary": write_vocabulary,
        "train": train,
        "export": export,
        "measure": measure,
        "card": write_card,
    }
    run[options.pop("command")](**options)


if __name__ == "__main__":
    main()
