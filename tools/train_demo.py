"""Trains the built-in model on pictures that it draws itself.

python tools/train_demo.py vocabulary            writes tools/demo_model/merges.txt
python tools/train_demo.py train FOLDER          trains or goes on; state and log in FOLDER
python tools/train_demo.py export FOLDER INTO    writes the trained model for transformers and jmm

Needs the parity extra and Debian's fonts-dejavu-core, fonts-liberation, fonts-freefont-ttf and
fonts-lato.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from demo_model import captions, vocabulary, world


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


def train(folder: Path, steps: int, threads: int) -> None:
    """Trains, from the start or from the last state."""
    import torch
    from demo_model.training import Settings, Trainer

    torch.set_num_threads(threads)
    folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(Settings(steps=steps), folder)
    trainer.resume()
    trainer.run(report_every=20, save_every=240, evaluate_every=900)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("vocabulary")
    command = commands.add_parser("train")
    command.add_argument("folder", type=Path)
    command.add_argument("--steps", type=int, default=4000)
    command.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.command == "vocabulary":
        write_vocabulary()
    elif arguments.command == "train":
        train(arguments.folder, arguments.steps, arguments.threads)


if __name__ == "__main__":
    main()
