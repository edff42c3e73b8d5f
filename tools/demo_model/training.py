"""The training loop: resumable, its log a line of JSON per report."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from demo_model import batches, dense, evaluation, losses, network, vocabulary, workers, world
from demo_model.evaluation import Embedded, Encoder
from demo_model.muon import Muon
from support import tiny

EVALUATED_TOGETHER = 50


@dataclass(frozen=True)
class Settings:
    """What decides the result, beside the code.

    Attributes:
        steps: Of the whole training; the learning rate falls to 0 over the last ``decay``.
        batch: Pairs per process and step; contrast is within them.
        twins: Chance of a twin, before and after ``twins_from`` of the steps.
        captioned: Share of a batch whose captions are also predicted from the pictures.
    """

    seed: int = 5
    steps: int = 1500
    batch: int = 32
    muon_lr: float = 4e-3
    adam_lr: float = 1e-3
    warm_up: int = 30
    decay: float = 0.3
    twins: tuple[float, float] = (0.2, 0.6)
    twins_step: int = 200
    captioned: float = 0.25
    heads: float = 0.3
    token_heads: float = 0.3
    characters: float = 0.5
    caption_weight: float = 0.5
    shape: network.Shape = field(default_factory=network.Shape)

    def rate(self, step: int) -> float:
        """Learning rate of a step over the highest."""
        left = (self.steps - step) / (self.decay * self.steps)
        return min(1.0, (step + 1) / self.warm_up, max(left, 0.0))


class Trainer:
    """Model, heads and optimizers; equal in all processes.

    Args:
        settings: The recipe.
        folder: Where ``state.pt`` and ``log.jsonl`` lie.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        torch.manual_seed(settings.seed)
        vocab = vocabulary.load()
        markers = (vocab.id("<|vision_start|>"), vocab.id("<|vision_end|>"))
        self.model = network.DemoModel(settings.shape, markers=markers)
        self.heads = losses.Heads(settings.shape.hidden)
        self.token_heads = losses.TokenHeads(settings.shape.hidden)
        self.character_head = losses.CharacterHead(settings.shape.v_hidden)
        self.scales = nn.Parameter(torch.tensor([2.3, 2.3]))
        self.step, self.spent, self.stopped = 0, 0.0, False
        self._stop = threading.Event()
        self._mean, self._std = torch.tensor(tiny.IMAGE_MEAN), torch.tensor(tiny.IMAGE_STD)
        self._optimizers = self._make_optimizers()

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    def _make_optimizers(self) -> list[torch.optim.Optimizer]:
        matrices, rest = (
            [],
            [
                self.scales,
                *self.heads.parameters(),
                *self.token_heads.parameters(),
            ],
        )
        for name, value in self.model.named_parameters():
            inner = value.ndim == 2 and not name.startswith(("embed.", "multi.", "vision.merge0."))
            (matrices if inner else rest).append(value)
        rest += self.character_head.parameters()
        settings = self.settings
        return [
            Muon(matrices, settings.muon_lr),
            torch.optim.AdamW(rest, settings.adam_lr, betas=(0.9, 0.98), weight_decay=0.01),
        ]

    def save(self) -> None:
        """Writes ``state.pt``; a kill leaves the old or the new file."""
        state = {
            "settings": asdict(self.settings),
            "model": self.model.state_dict(),
            "heads": self.heads.state_dict(),
            "token_heads": self.token_heads.state_dict(),
            "character_head": self.character_head.state_dict(),
            "scales": self.scales.data,
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "step": self.step,
            "spent": self.spent,
        }
        path = self.folder / "state.pt"
        torch.save(state, path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)

    def resume(self, path: Path | None = None) -> bool:
        """Goes on from ``state.pt`` if there is one.

        Raises:
            ValueError: It was begun with other settings, such as another number of steps, which
                the learning rate depends on.
        """
        path = path or self.folder / "state.pt"
        if not path.exists():
            return False
        state = torch.load(path, weights_only=True)
        began, now = state["settings"], asdict(self.settings)
        others = [name for name in now if began.get(name) != now[name]]
        if others:
            told = ", ".join(f"{name}={began.get(name)!r}, not {now[name]!r}" for name in others)
            raise ValueError(f"{path}: this training was begun with {told}; go on with the same")
        self.model.load_state_dict(state["model"])
        self.heads.load_state_dict(state["heads"])
        self.token_heads.load_state_dict(state["token_heads"])
        self.character_head.load_state_dict(state["character_head"])
        self.scales.data.copy_(state["scales"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.spent = state["step"], state["spent"]
        return True

    def patches(self, pixels: NDArray[np.uint8]) -> Tensor:
        """float32 [n, 36, 588]."""
        return network.to_patches(torch.tensor(pixels), self._mean, self._std)

    def loss(self, batch: batches.Batch) -> tuple[Tensor, dict[str, float]]:
        """The whole loss and its parts."""
        settings = self.settings
        ids, mask = torch.from_numpy(batch.ids), torch.from_numpy(batch.mask)
        true = torch.from_numpy(batch.true)
        image, seen_patches = self.model.vision(self.patches(batch.pixels))
        n = round(len(image) * settings.captioned)
        texts = self.model.texts(ids, mask)
        rows, told = [], None
        if n:
            told = self.model.pictures(image[:n], ids[:n])
            rows.append(told.hidden[:, : self.model.n_picture])
        if n < len(image):
            rows.append(self.model.pictures(image[n:]).hidden)
        shown = network.Encoded(torch.cat(rows), torch.ones(len(image), self.model.n_picture))
        a, b = network.pooled(texts), network.pooled(shown)
        scale = self.scales.clamp(max=4.6).exp()
        single = losses.single_vector(a, b, scale[0], true)
        tokens, patches = (F.normalize(self.model.multi(e.hidden), dim=-1) for e in (texts, shown))
        multi = losses.contrast(scale[1] * losses.maxsim(tokens, mask, patches), true)
        seen, right = self.heads(b, torch.from_numpy(batch.picture_labels))
        said, _ = self.heads(a, torch.from_numpy(batch.text_labels))
        local, local_right = self.token_heads(
            shown.hidden[:, 1:-1], torch.from_numpy(batch.token_labels)
        )
        letters, letters_right = self.character_head(
            seen_patches, torch.from_numpy(batch.characters)
        )
        total = single + 0.5 * multi + settings.heads * (seen + said)
        total = total + settings.token_heads * local + settings.characters * letters
        parts = {"single": single, "multi": multi, "seen": seen, "said": said, "local": local}
        parts |= {"letters": letters, "letters right": letters_right}
        if told is not None:
            caption = losses.captioning(told.hidden, self.model.embed.weight, ids[:n], mask[:n])
            total = total + settings.caption_weight * caption
            parts["caption"] = caption
        report = {name: value.item() for name, value in parts.items()}
        report |= dict(zip(world.VALUES, right.tolist(), strict=True))
        names = [f"local {name}" for name in dense.SIZES]
        return total, report | dict(zip(names, local_right.tolist(), strict=True))

    def train_step(self) -> dict[str, float]:
        """One batch."""
        settings = self.settings
        twins = settings.twins[self.step >= settings.twins_step]
        worker, n_workers = workers.rank_and_size()
        batch = batches.make(settings.seed, self.step, settings.batch, twins, worker=worker)
        rate = settings.rate(self.step)
        for optimizer, lr in zip(
            self._optimizers, (settings.muon_lr, settings.adam_lr), strict=True
        ):
            optimizer.zero_grad(set_to_none=True)
            for group in optimizer.param_groups:
                group["lr"] = lr * rate
        total, report = self.loss(batch)
        total.backward()
        values = [value for group in self._groups() for value in group["params"]]
        stop = torch.tensor([float(self._stop.is_set())])
        *gradients, stops = workers.summed([*(value.grad for value in values), stop])
        for value, gradient in zip(values, gradients, strict=True):
            value.grad = gradient / n_workers
        self.stopped = bool(stops.item())
        nn.utils.clip_grad_norm_(self._optimizers[1].param_groups[0]["params"], 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
        self.step += 1
        return report

    def run(self, *, report_every: int, save_every: float, evaluate_every: float) -> None:
        """Trains to the end, or until SIGTERM or Ctrl-C: then the step is finished and saved.

        Args:
            report_every: Steps between two lines of the log.
            save_every: Seconds of this process's CPU time between two states.
            evaluate_every: Seconds of this process's CPU time between two held-out measurements.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        saved = evaluated = self.spent
        rank, _ = workers.rank_and_size()
        reports: list[dict[str, float]] = []
        while self.step < self.settings.steps and not self.stopped:
            start = time.process_time()
            reports.append(self.train_step())
            self.spent += time.process_time() - start
            if rank:
                continue
            if self.step % report_every == 0:
                self.report(reports)
                reports = []
            if self.spent - saved > save_every:
                saved = self.spent
                self.save()
            if self.spent - evaluated > evaluate_every:
                evaluated = self.spent
                self.log({"step": self.step, **self.evaluate(100)})
        if rank:
            return
        self.save()
        if self.step == self.settings.steps:
            self.log({"step": self.step, **self.evaluate(200)})

    def report(self, reports: list[dict[str, float]]) -> None:
        """Logs the means of some steps."""
        names = dict.fromkeys(name for report in reports for name in report)
        values = {name: [r.get(name, np.nan) for r in reports] for name in names}
        mean = {
            name: round(float(np.nanmean(value)), 3)
            for name, value in values.items()
            if not np.isnan(value).all()
        }
        self.log({"step": self.step, "cpu_s": round(self.spent), **mean})

    def log(self, line: dict[str, Any]) -> None:
        """Appends a line to ``log.jsonl``."""
        with (self.folder / "log.jsonl").open("a") as file:
            print(json.dumps({"clock": time.strftime("%H:%M:%S"), **line}), file=file)

    @torch.inference_mode()
    def embed_texts(self, texts: list[str]) -> Embedded:
        """Texts as `evaluation` takes them."""
        vectors, rows = [], []
        for i in range(0, len(texts), EVALUATED_TOGETHER):
            part = vocabulary.encode(texts[i : i + EVALUATED_TOGETHER])
            ids, mask = map(torch.from_numpy, batches.pad(part))
            encoded = self.model.texts(ids, mask)
            vectors.append(network.pooled(encoded).numpy())
            tokens = F.normalize(self.model.multi(encoded.hidden), dim=-1).numpy()
            rows += [row[: len(ids)] for row, ids in zip(tokens, part, strict=True)]
        return Embedded(np.concatenate(vectors), rows)

    @torch.inference_mode()
    def embed_pictures(self, pixels: NDArray[np.uint8]) -> Embedded:
        """Pictures as `evaluation` takes them."""
        vectors, rows = [], []
        for i in range(0, len(pixels), EVALUATED_TOGETHER):
            patches = self.patches(pixels[i : i + EVALUATED_TOGETHER])
            encoded = self.model.pictures(self.model.vision(patches)[0])
            vectors.append(network.pooled(encoded).numpy())
            rows += list(F.normalize(self.model.multi(encoded.hidden), dim=-1).numpy())
        return Embedded(np.concatenate(vectors), rows)

    def evaluate(self, n: int) -> dict[str, Any]:
        """Held-out measurements, ``n`` pictures for each one-attribute test."""
        return evaluation.measure(self.encoder(), self.settings.seed, n)

    def encoder(self) -> Encoder:
        """The model as `evaluation` takes it."""
        return Encoder(self.embed_texts, self.embed_pictures)


def load_trainer(folder: Path) -> Trainer:
    """The state that lies in ``folder``.

    Raises:
        FileNotFoundError: There is none.
    """
    path = folder / "state.pt"
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no state.pt; train first")
    settings = torch.load(path, weights_only=True)["settings"]
    settings |= {"twins": tuple(settings["twins"]), "shape": network.Shape(**settings["shape"])}
    trainer = Trainer(Settings(**settings), folder)
    trainer.resume()
    return trainer


def load_model(folder: Path) -> network.DemoModel:
    """The model of the state that lies in ``folder``."""
    return load_trainer(folder).model.eval()
