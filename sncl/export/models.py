"""What a run predicts with, from stored images to logits: as it was trained, and without its closed neurons."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from sncl.analysis.loading import Trained
from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.networks.prune import Pruned, pruned
from sncl.networks.taps import Tapped
from sncl.streams.augment import View

EXAMPLE_ROWS = 3  # a number of rows that nothing else in a network has


class Predictor(nn.Module):
    """Images as they are stored to logits."""

    def __init__(self, view: View, net: nn.Module) -> None:
        super().__init__()
        self.view, self.net = view, net

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(self.view.still(images))
        return logits


class _InItsWay(nn.Module):
    """A network that predicts as its method does. The method is no submodule: of its tensors only those used count."""

    def __init__(self, method: Method, net: Tapped) -> None:
        super().__init__()
        self.net = net
        self._predict = method.predict

    def forward(self, x: Tensor) -> Tensor:
        return self._predict(self.net, x)


@dataclass(frozen=True)
class Models:
    """What a run predicts with: as it was trained, and with closed neurons removed."""

    trained: Predictor
    small: Predictor
    pruned: Pruned


def make_models(run: Trained) -> Models:
    learner, method = run.learner, run.learner.method
    if method.needs_task_at_test:
        raise SnclError(
            f"{run.folder}: {run.experiment.method} predicts only when told the task, and an exported model takes "
            "nothing but images"
        )
    view = run.stream.view  # it keeps the constants it has made once; making them here keeps them out of a trace
    example = view.still(run.stream.test(0)[0][:EXAMPLE_ROWS])
    trained: nn.Module = _InItsWay(method, learner.net)
    if type(method).predict is Method.predict:
        found = pruned(learner.net, example)
        small: nn.Module = found.net
    else:  # it reads more of its network than the logits, and has no gates
        found, small = Pruned(trained, {}, 0.0), trained
    return Models(Predictor(view, trained).eval(), Predictor(view, small).eval(), found)
