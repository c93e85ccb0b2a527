"""A copy of what predicts, for predictions that never wait for learning.

>>> snapshot = learner.snapshot()
>>> snapshot.predict(x)  # in any number of threads, while another one calls learner.learn
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.training.finite import check_weights
from sncl.training.inputs import Samples
from sncl.training.predicting import Inference, Predicting, counted, in_words

if TYPE_CHECKING:
    from sncl.training.learner import Learner


class Snapshot(Predicting):
    """What a learner predicted with when :meth:`Learner.snapshot` was called; nothing changes it any more.

    It shares no lock and no tensor with the learner, and its predictions are the same bits as the learner's were. Any
    number of threads may predict at once. It costs one copy of the network (with the average of the weights in place
    of the weights, where there is one) and of what the method itself predicts with; of the memory and the optimiser
    nothing is copied. Threads that predict at the same time share these tensors and have modules of their own.
    """

    def __init__(self, learner: Learner) -> None:
        self.steps, self.tasks, self.outputs = learner.steps, learner.tasks, learner.outputs
        self.device = learner.device
        try:
            with learner.predicting():
                check_weights(learner)
                self._master = _detached(learner)
            self.preprocessing = deepcopy(learner.preprocessing)
        except (RuntimeError, TypeError, AttributeError) as error:
            what = str(error).partition("\n")[0]
            raise SnclError(
                f"this learner cannot be copied, so it has no snapshot ({what}); predict with the learner itself"
            ) from error
        self._free: deque[Inference] = deque()  # copies that no thread uses now

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, where the learner had them."""
        return () if self.preprocessing is None else tuple(self.preprocessing.class_names)

    def logits(self, x: Samples, task: int | None = None) -> Tensor:
        """The same as :meth:`Learner.logits` when the snapshot was taken. [rows, classes]"""
        with self._borrowed() as inference:
            return inference.logits(x, task)

    @contextmanager
    def _borrowed(self) -> Iterator[Inference]:
        """Modules that no other thread runs meanwhile: while one runs, it may keep what it sees in its attributes."""
        try:
            own = self._free.pop()
        except IndexError:
            own = deepcopy(self._master, _shared(self._master))
        try:
            yield own
        finally:
            self._free.append(own)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_free": deque()}

    def __repr__(self) -> str:
        net, method = in_words(self._master.net.body), type(self._master.method).__name__
        known = f"{counted(self.outputs, 'output')}, after {counted(self.steps, 'step')}"
        return f"Snapshot({net}, {method}, {known}, {self.device})"


def _detached(learner: Learner) -> Inference:
    """A copy of what predicts, in evaluation mode."""
    method, signature = learner.method, learner.signature
    if type(method).predict is Method.predict:  # which reads the network alone
        method = _without_content(method)
    memo = {id(each): each for each in (signature, *signature.example.values())}
    copied = deepcopy(Inference(method, learner.net, learner.transform, signature, learner.device), memo)
    copied.net.requires_grad_(False).eval()
    return copied


def _without_content(method: Method) -> Method:
    """A method of the same class without its state: no old network, no importance of weights."""
    empty = type(method).__new__(type(method))
    nn.Module.__init__(empty)
    return empty


def _shared(inference: Inference) -> dict[int, Any]:
    """What copies for several threads have in common, none of which a prediction changes."""
    method, net, transform, signature, _ = inference
    values = (method.parameters(), method.buffers(), net.parameters(), net.buffers(), signature.example.values())
    return {id(each): each for each in (transform, signature, *chain(*values))}
