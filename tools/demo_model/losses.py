"""What is minimised: contrast of both vector kinds, attribute heads, captioning."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from demo_model import dense, world

NOTHING_WEIGHT = 0.3
MATRYOSHKA = {32: 0.15, 64: 0.15, 128: 0.15, 256: 0.55}


class Heads(nn.Module):
    """One linear classifier per attribute, shared by picture and text vectors.

    Sharing makes both kinds of vector point the same way for the same attribute.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = width**0.5
        self.sizes = [len(values) for values in world.VALUES.values()]
        self.linear = nn.Linear(width, sum(self.sizes))
        nn.init.normal_(self.linear.weight, std=0.05)
        nn.init.zeros_(self.linear.bias)

    def forward(self, vectors: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy summed over attributes and averaged over items.

        Args:
            vectors: Unit vectors [batch, width].
            labels: int64 [batch, n_attributes], `world.IGNORED` where there is none.

        Returns:
            The loss, and how often each attribute is right (NaN where no item has it).
        """
        parts = self.linear(vectors * self.gain).split(self.sizes, -1)
        total = vectors.new_zeros(())
        right = []
        for logits, label in zip(parts, labels.T, strict=True):
            total = total + F.cross_entropy(
                logits, label, ignore_index=world.IGNORED, reduction="sum"
            )
            known = label != world.IGNORED
            right.append((logits.argmax(-1) == label)[known].float().mean())
        return total / len(vectors), torch.stack(right)


class TokenHeads(nn.Module):
    """One linear classifier per kind of label in `dense.SIZES`, on single image rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.sizes = [size + 1 for size in dense.SIZES.values()]
        self.linear = nn.Linear(width, sum(self.sizes))
        nn.init.normal_(self.linear.weight, std=0.05)
        nn.init.zeros_(self.linear.bias)

    def forward(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy summed over the kinds of label.

        Args:
            rows: Image rows [batch, 9, width].
            labels: int64 [batch, n_kinds, 9].

        Returns:
            The loss, and how often the classes beside "nothing" are right, [n_kinds].
        """
        total, right = rows.new_zeros(()), []
        for logits, label in zip(
            self.linear(rows).split(self.sizes, -1), labels.unbind(1), strict=True
        ):
            nothing = logits.shape[-1] - 1
            weight = torch.ones(nothing + 1)
            weight[nothing] = NOTHING_WEIGHT
            if (label != world.IGNORED).any():
                total = total + F.cross_entropy(
                    logits.transpose(1, 2), label, weight, ignore_index=world.IGNORED
                )
            something = (label != world.IGNORED) & (label != nothing)
            right.append((logits.argmax(-1) == label)[something].float().mean())
        return total, torch.stack(right)


class CharacterHead(nn.Module):
    """A linear classifier of the character that a patch shows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, len(dense.CHARACTERS) + 1)
        nn.init.normal_(self.linear.weight, std=0.05)
        nn.init.zeros_(self.linear.bias)

    def forward(self, patches: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy, and how often characters are right.

        Args:
            patches: [batch, 36, width].
            labels: int64 [batch, 36].
        """
        logits, label = self.linear(patches).flatten(0, 1), labels.flatten()
        weight = torch.ones(logits.shape[-1])
        weight[-1] = NOTHING_WEIGHT
        shown = label < len(dense.CHARACTERS)
        right = (logits.argmax(-1) == label)[shown].float().mean()
        return F.cross_entropy(logits, label, weight), right


def contrast(scores: Tensor, also_true: Tensor) -> Tensor:
    """Symmetric InfoNCE; pairs beside the diagonal that are true as well do not count.

    Args:
        scores: [batch, batch], captions by pictures, already scaled.
        also_true: bool [batch, batch].
    """
    off = also_true & ~torch.eye(len(scores), dtype=torch.bool)
    scores = scores.masked_fill(off, float("-inf"))
    target = torch.arange(len(scores))
    return (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2


def single_vector(texts: Tensor, pictures: Tensor, scale: Tensor, also_true: Tensor) -> Tensor:
    """`contrast` of the vectors, cut to each of the matryoshka widths."""
    total = scale.new_zeros(())
    for width, weight in MATRYOSHKA.items():
        a, b = F.normalize(texts[:, :width], dim=-1), F.normalize(pictures[:, :width], dim=-1)
        total = total + weight * contrast(scale * a @ b.T, also_true)
    return total


def maxsim(texts: Tensor, mask: Tensor, pictures: Tensor) -> Tensor:
    """Late interaction: for each text token the best picture row, averaged over the text.

    Args:
        texts: Unit rows [n, t, width].
        mask: [n, t].
        pictures: Unit rows [m, p, width].
    """
    best = torch.einsum("itd,jpd->ijtp", texts, pictures).amax(-1)
    return (best * mask[:, None]).sum(-1) / mask.sum(-1)[:, None]


def captioning(hidden: Tensor, embedding: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy of each caption token given the picture and the tokens before it.

    Args:
        hidden: Rows [batch, 11 + n, width] of pictures and captions.
        embedding: The token matrix, which is also the output matrix.
        ids: [batch, n].
        mask: [batch, n].
    """
    logits = hidden[:, -ids.shape[1] - 1 : -1] @ embedding.T
    return F.cross_entropy(
        logits.flatten(0, 1), ids.masked_fill(mask == 0, world.IGNORED).flatten()
    )
