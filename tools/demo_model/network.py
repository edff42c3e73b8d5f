"""The demo model in torch: Qwen2.5-VL's computation for one picture size, written for training.

A picture is 6 x 6 patches, one attention window, so that windowed and full layers agree. The
weights export to transformers' class as they are (see `export`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPS = 1e-6
GRID = 6
PATCH = 14
MERGE = 2
VISION_THETA = 1e4


@dataclass(frozen=True)
class Shape:
    """Widths and depths.

    Attributes:
        mrope_section: Rotary pairs for time, height and width.
        rope_theta: Small, so that a step of one image token is seen in every pair.
    """

    n_tokens: int = 768
    hidden: int = 256
    ffn: int = 768
    layers: int = 2
    heads: int = 4
    kv_heads: int = 4
    mrope_section: tuple[int, int, int] = (4, 14, 14)
    rope_theta: float = 10.0
    v_hidden: int = 192
    v_ffn: int = 512
    v_layers: int = 4
    v_heads: int = 4
    multi: int = 128


class RMSNorm(nn.Module):
    """As Qwen2RMSNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight, EPS)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [batch, heads, n, dim], halves paired."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax attention; ``mask`` is added to the scores."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ v


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int, ffn: int, bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, ffn, bias)
        self.up_proj = nn.Linear(width, ffn, bias)
        self.down_proj = nn.Linear(ffn, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class VisionBlock(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.v_hidden
        self.heads = shape.v_heads
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.proj = nn.Linear(width, width)
        self.mlp = MLP(width, shape.v_ffn, bias=True)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, n, width = x.shape
        y = self.norm1(x)
        q, k, v = (
            f(y).view(batch, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        y = attend(rotate(q, cos, sin), rotate(k, cos, sin), v, None)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, n, width))
        return x + self.mlp(self.norm2(x))


class Vision(nn.Module):
    """Patches [batch, 36, 588] to image tokens [batch, 9, hidden]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.v_hidden
        self.patch_embed = nn.Linear(3 * PATCH * PATCH, width, bias=False)
        self.blocks = nn.ModuleList(VisionBlock(shape) for _ in range(shape.v_layers))
        self.ln_q = RMSNorm(width)
        self.merge0 = nn.Linear(width * MERGE**2, width * MERGE**2)
        self.merge2 = nn.Linear(width * MERGE**2, shape.hidden)
        cos, sin = vision_rope(width // shape.v_heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        """Image tokens, and the patches [batch, 36, v_hidden] that they are merged from."""
        x = self.patch_embed(patches)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        x = self.ln_q(x)
        merged = x.view(len(x), (GRID // MERGE) ** 2, -1)
        return self.merge2(F.gelu(self.merge0(merged))), x


def merge_order() -> Tensor:
    """(row, column) of each patch, the four of a token next to each other, [36, 2]."""
    side = GRID // MERGE
    index = torch.stack(torch.meshgrid(torch.arange(GRID), torch.arange(GRID), indexing="ij"), -1)
    return index.view(side, MERGE, side, MERGE, 2).transpose(1, 2).reshape(-1, 2)


def vision_rope(head: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the patches' places, [36, head]."""
    freq = VISION_THETA ** (-torch.arange(0, head // 2, 2).float() / (head // 2))
    angles = (merge_order().float()[:, :, None] * freq).flatten(1)
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


class TextBlock(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, head = shape.hidden, shape.hidden // shape.heads
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, head * shape.kv_heads)
        self.v = nn.Linear(width, head * shape.kv_heads)
        self.o = nn.Linear(width, width, bias=False)
        self.mlp = MLP(width, shape.ffn, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        batch, n, width = x.shape
        y = self.norm1(x)
        q = self.q(y).view(batch, n, self.heads, -1).transpose(1, 2)
        k, v = (f(y).view(batch, n, self.kv_heads, -1).transpose(1, 2) for f in (self.k, self.v))
        repeats = self.heads // self.kv_heads
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = attend(q, k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1), mask)
        x = x + self.o(y.transpose(1, 2).reshape(batch, n, width))
        return x + self.mlp(self.norm2(x))


class Encoded(NamedTuple):
    """Hidden rows [batch, n, hidden] and which of them belong to the item, [batch, n]."""

    hidden: Tensor
    mask: Tensor


class DemoModel(nn.Module):
    """The whole model: vision tower, language model, multi-vector head."""

    def __init__(self, shape: Shape = Shape(), *, markers: tuple[int, int]) -> None:
        super().__init__()
        self.shape, self.markers = shape, markers
        self.embed = nn.Embedding(shape.n_tokens, shape.hidden)
        self.blocks = nn.ModuleList(TextBlock(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden)
        self.vision = Vision(shape)
        self.multi = nn.Linear(shape.hidden, shape.multi)
        self._initialise()

    def _initialise(self) -> None:
        for name, value in self.named_parameters():
            if name.startswith("embed."):
                nn.init.normal_(value, std=0.05)
            elif name.endswith(".bias"):
                nn.init.zeros_(value)
            elif value.ndim == 2:
                halved = name.endswith(("proj.weight", "o.weight", "down_proj.weight"))
                halved = halved and "gate_proj" not in name and "up_proj" not in name
                nn.init.normal_(value, std=(0.5 if halved else 1.0) / math.sqrt(value.shape[1]))

    def _rope(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Positions [3, n] to cosines and sines [n, head]."""
        half = self.shape.hidden // self.shape.heads // 2
        freq = self.shape.rope_theta ** (-torch.arange(half).float() / half)
        axis = torch.repeat_interleave(torch.arange(3), torch.tensor(self.shape.mrope_section))
        angles = positions[axis].T.float() * freq
        angles = torch.cat((angles, angles), -1)
        return angles.cos(), angles.sin()

    def _run(self, x: Tensor, positions: Tensor) -> Tensor:
        n = x.shape[1]
        causal = torch.full((n, n), float("-inf")).triu(1)
        cos, sin = self._rope(positions)
        for block in self.blocks:
            x = block(x, cos, sin, causal)
        return self.norm(x)

    def texts(self, ids: Tensor, mask: Tensor) -> Encoded:
        """Texts, padded on the right: ids and mask [batch, n]."""
        positions = torch.arange(ids.shape[1]).expand(3, -1)
        return Encoded(self._run(self.embed(ids), positions), mask)

    @property
    def n_picture(self) -> int:
        """Rows of a picture: its tokens and the two markers."""
        return (GRID // MERGE) ** 2 + 2

    def pictures(self, image: Tensor, captions: Tensor | None = None) -> Encoded:
        """Pictures between their markers.

        Args:
            image: The image tokens that `vision` gives, [batch, 9, hidden].
            captions: Ids [batch, n] that follow; causality keeps them out of the pictures' rows.

        Returns:
            The pictures' 11 rows, then those of ``captions``; the mask has 11 columns.
        """
        start, end = self.embed(torch.tensor(self.markers))
        batch, side = len(image), GRID // MERGE
        rows = torch.cat((start.expand(batch, 1, -1), image, end.expand(batch, 1, -1)), 1)
        grid = torch.arange(side * side)
        place = torch.stack((torch.zeros_like(grid), grid // side, grid % side)) + 1
        first, last = torch.zeros(3, 1, dtype=torch.long), torch.full((3, 1), side + 1)
        positions = torch.cat((first, place, last), 1)
        if captions is not None:
            rows = torch.cat((rows, self.embed(captions)), 1)
            after = side + 2 + torch.arange(captions.shape[1]).expand(3, -1)
            positions = torch.cat((positions, after), 1)
        return Encoded(self._run(rows, positions), torch.ones(batch, self.n_picture))


def pooled(encoded: Encoded) -> Tensor:
    """Unit mean over an item's rows, [batch, hidden]."""
    weight = encoded.mask / encoded.mask.sum(1, keepdim=True)
    n = encoded.mask.shape[1]
    return F.normalize((encoded.hidden[:, :n] * weight[..., None]).sum(1), dim=-1)


def to_patches(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 [batch, 84, 84, 3] to float32 [batch, 36, 588], columns (channel, y, x)."""
    x = ((pixels.float() / 255 - mean) / std).permute(0, 3, 1, 2)
    side = GRID // MERGE
    x = x.reshape(len(x), 3, side, MERGE, PATCH, side, MERGE, PATCH)
    return x.permute(0, 2, 5, 3, 6, 1, 4, 7).reshape(len(x), GRID * GRID, -1)
