"""Computing without gradients, begun and ended as soon as single rows ask for."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch


class WithoutGradients(AbstractContextManager[None]):
    """The same as ``torch.no_grad()``, which takes longer to make than a small layer does to compute."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *error: object) -> None:
        torch._C._set_grad_enabled(self._before)
