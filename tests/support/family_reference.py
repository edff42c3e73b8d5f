"""What transformers computes with the models of `support.family`. Needs torch and transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from support.family import Array, Family
from support.sequences import unit_mean

_to = torch.Tensor.to


def _to_double(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    widened = [torch.float64 if arg is torch.float32 else arg for arg in args]
    if kwargs.get("dtype") is torch.float32:
        kwargs["dtype"] = torch.float64
    return _to(self, *widened, **kwargs)


@contextmanager
def in_double() -> Iterator[None]:
    """Lifts transformers' own casts to float32."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        stack.enter_context(mock.patch.object(torch.Tensor, "to", _to_double))
        yield


def net(family: Family) -> Any:
    """transformers' model, its weights as they come."""
    kind = getattr(transformers, family.net)
    settings = kind.config_class(**family.config)
    settings._attn_implementation = "sdpa" if kind._supports_sdpa else "eager"
    return kind(settings, **family.net_arguments).eval()


def shapes(family: Family) -> dict[str, list[int]]:
    """Shapes of all parameters, by transformers' names."""
    state = net(family).state_dict()
    return {name: list(value.shape) for name, value in state.items() if value.is_floating_point()}


class FamilyReference:
    """One model in double precision.

    Args:
        family: Which.
        arrays: Its parameters.
    """

    def __init__(self, family: Family, arrays: Mapping[str, Array]) -> None:
        self.family = family
        self.extra = {name: arrays[name].astype(np.float64) for name in family.extra}
        self.net = net(family)
        state = {name: torch.from_numpy(arrays[name].copy()) for name in arrays}
        for name in family.extra:
            del state[name]
        self.net.load_state_dict(state, strict=False)
        missing = set(self.net.state_dict()) - set(state)
        if any(self.net.state_dict()[name].is_floating_point() for name in missing):
            raise RuntimeError(f"no weights for {sorted(missing)}")
        self.net = self.net.double()

    def tokenize(self, text: str) -> NDArray[np.int64]:
        """Ids of a text, its special tokens included, int64 [n]."""
        return np.array(self.family.words().encode(text), np.int64)

    @torch.inference_mode()
    def hidden(self, ids: NDArray[np.integer]) -> NDArray[np.float64]:
        """Last hidden state, and what the model's dense modules make of it, [n, dim]."""
        inputs = {"input_ids": torch.from_numpy(np.asarray(ids, np.int64))[None]}
        with in_double():
            result = self.net(**inputs).last_hidden_state[0].double().numpy()
        for weight in self.extra.values():
            result = result @ weight.T
        return result

    def vector(self, ids: NDArray[np.integer]) -> NDArray[np.float32]:
        """The unit vector of a text."""
        hidden = self.hidden(ids)
        return unit_mean(hidden[:1] if self.family.pooling == "cls" else hidden)
