"""Qwen2.5-VL as plain torch modules for one size of picture, as a graph compiler likes it.

Sizes, rotary tables and the order of windows are constants; windows are one batched attention.
Parameters carry transformers' names.
"""

from __future__ import annotations

import torch
from common import inputs
from torch import nn
from torch.nn import functional as F

from support import tiny
from support.tiny import TinyModel

SIDE = tiny.WINDOW // tiny.PATCH // tiny.MERGE


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class MLP(nn.Module):
    def __init__(self, width: int, ffn: int, *, bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, ffn, bias=bias)
        self.up_proj = nn.Linear(width, ffn, bias=bias)
        self.down_proj = nn.Linear(ffn, width, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def tables(angles: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [rows, 1, head_dim] of angles [rows, head_dim / 2]."""
    both = torch.cat((angles, angles), -1).unsqueeze(1)
    return both.cos(), both.sin()


def inverse_frequencies(n: int, theta: float) -> torch.Tensor:
    return theta ** -(torch.arange(n, dtype=torch.float32) / n)


class VisionAttention(nn.Module):
    def __init__(self, width: int, heads: int, n_windows: int) -> None:
        super().__init__()
        self.heads, self.n_windows = heads, n_windows
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        n, width = x.shape
        q, k, v = self.qkv(x).reshape(n, 3, self.heads, -1).unbind(1)
        q, k, v = (
            part.reshape(self.n_windows, n // self.n_windows, self.heads, -1).transpose(1, 2)
            for part in (rotate(q, cos, sin), rotate(k, cos, sin), v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.proj(mixed.transpose(1, 2).reshape(n, width))


class VisionBlock(nn.Module):
    def __init__(self, model: TinyModel, n_windows: int) -> None:
        super().__init__()
        self.norm1 = RMSNorm(model.v_hidden, tiny.VISION_EPS)
        self.norm2 = RMSNorm(model.v_hidden, tiny.VISION_EPS)
        self.attn = VisionAttention(model.v_hidden, model.v_heads, n_windows)
        self.mlp = MLP(model.v_hidden, model.v_ffn, bias=True)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Merger(nn.Module):
    def __init__(self, model: TinyModel) -> None:
        super().__init__()
        merged = model.v_hidden * tiny.MERGE**2
        self.ln_q = RMSNorm(model.v_hidden, tiny.VISION_EPS)
        self.mlp = nn.Sequential(
            nn.Linear(merged, merged), nn.GELU(), nn.Linear(merged, model.hidden)
        )
        self.merged = merged

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(self.ln_q(x).reshape(-1, self.merged))


class Vision(nn.Module):
    """Patches [n, 1176] in the processor's order to [n / 4, hidden]."""

    def __init__(self, model: TinyModel, height: int, width: int) -> None:
        super().__init__()
        rows, columns = height // inputs.SIDE, width // inputs.SIDE
        if rows % SIDE or columns % SIDE:
            raise ValueError(f"sides must be multiples of {tiny.WINDOW} pixels: whole windows")
        n_windows = rows * columns // SIDE**2
        full = model.full_attention_layers
        self.patch_embed = nn.ModuleDict({"proj": nn.Linear(1176, model.v_hidden, bias=False)})
        self.blocks = nn.ModuleList(
            VisionBlock(model, 1 if i in full else n_windows) for i in range(model.v_layers)
        )
        self.merger = Merger(model)
        order, patch_order, y, x = _window_order(rows, columns)
        frequencies = inverse_frequencies(model.v_hidden // model.v_heads // 4, 1e4)
        angles = torch.cat((y[:, None] * frequencies, x[:, None] * frequencies), 1)
        cos, sin = tables(angles)
        for name, value in {
            "patch_order": patch_order,
            "back": order.argsort(),
            "cos": cos,
            "sin": sin,
        }.items():
            self.register_buffer(name, value, persistent=False)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        x = self.patch_embed["proj"](patches[self.patch_order])
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.merger(x)[self.back]


def _window_order(rows: int, columns: int) -> tuple[torch.Tensor, ...]:
    """Tokens ordered by window, their patches, and the row and column of each such patch."""
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    y, x = y.flatten(), x.flatten()
    order = (y // SIDE * columns + x // SIDE).argsort(stable=True)
    inner = torch.arange(tiny.MERGE**2)
    patch_order = (order[:, None] * len(inner) + inner).flatten()
    patch_y = (y[order, None] * tiny.MERGE + inner // tiny.MERGE).flatten()
    patch_x = (x[order, None] * tiny.MERGE + inner % tiny.MERGE).flatten()
    return order, patch_order, patch_y, patch_x


class TextAttention(nn.Module):
    def __init__(self, model: TinyModel) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = model.heads, model.kv_heads, model.head_dim
        n_kv = model.kv_heads * model.head_dim
        self.q_proj = nn.Linear(model.hidden, model.hidden)
        self.k_proj = nn.Linear(model.hidden, n_kv)
        self.v_proj = nn.Linear(model.hidden, n_kv)
        self.o_proj = nn.Linear(model.hidden, model.hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        n, width = x.shape
        q = rotate(self.q_proj(x).reshape(n, self.heads, self.size), cos, sin)
        k = rotate(self.k_proj(x).reshape(n, self.kv_heads, self.size), cos, sin)
        v = self.v_proj(x).reshape(n, self.kv_heads, self.size)
        share = self.heads // self.kv_heads
        k, v = (
            part[:, :, None].expand(-1, -1, share, -1).reshape(n, self.heads, -1) for part in (k, v)
        )
        q, k, v = (part.transpose(0, 1).unsqueeze(0) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed[0].transpose(0, 1).reshape(n, width))


class TextLayer(nn.Module):
    def __init__(self, model: TinyModel) -> None:
        super().__init__()
        self.self_attn = TextAttention(model)
        self.mlp = MLP(model.hidden, model.ffn, bias=False)
        self.input_layernorm = RMSNorm(model.hidden, model.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(model.hidden, model.rms_norm_eps)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Language(nn.Module):
    """A picture's rows [n, hidden] between its two markers to the mean hidden state [hidden]."""

    def __init__(self, model: TinyModel, height: int, width: int, markers: torch.Tensor) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TextLayer(model) for _ in range(model.layers))
        self.norm = RMSNorm(model.hidden, model.rms_norm_eps)
        positions = _positions(height // inputs.SIDE, width // inputs.SIDE)
        axis = torch.repeat_interleave(torch.arange(3), torch.tensor(model.mrope_section))
        frequencies = inverse_frequencies(model.head_dim // 2, model.rope_theta)
        cos, sin = tables(positions[axis].T * frequencies)
        for name, value in {"cos": cos, "sin": sin, "markers": markers}.items():
            self.register_buffer(name, value, persistent=False)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        x = torch.cat((self.markers[:1], picture, self.markers[1:]))
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.norm(x).mean(0)


def _positions(rows: int, columns: int) -> torch.Tensor:
    """Time, height and width of every token, [3, rows * columns + 2]."""
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    picture = torch.stack((torch.zeros_like(y), y, x)).reshape(3, -1) + 1
    end = torch.full((3, 1), 1 + max(rows, columns))
    return torch.cat((torch.zeros(3, 1, dtype=torch.long), picture, end), 1)
