"""What a run predicts with, from stored images to logits: as trained, without its closed neurons, and dense."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.networks.pruning.prune import Pruned, pruned
from sncl.networks.pruning.scales import without_gates
from sncl.networks.taps import Tapped, evaluating
from sncl.runs.loading import Trained
from sncl.streams.transforms import Transform


class Predictor(nn.Module):
    """Images as they are stored to logits."""

    def __init__(self, transform: Transform, net: nn.Module) -> None:
        super().__init__()
        self.transform, self.net = transform, net

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(self.transform.eval(images))
        return logits


class _MethodPredictor(nn.Module):
    """A network that predicts as its method does. The method is no submodule: of its tensors only those used count."""

    def __init__(self, method: Method, net: Tapped) -> None:
        super().__init__()
        self.net = net
        self._predict = method.predict

    def forward(self, x: Tensor) -> Tensor:
        return self._predict(self.net, x)


@dataclass(frozen=True)
class Models:
    """What a run predicts with: as it was trained, and with closed neurons removed.

    ``dense`` has all neurons and no gates, as if there had never been any: it predicts something else, at the cost that
    a network without sparsity has. Without gates it is ``small``.
    """

    trained: Predictor
    small: Predictor
    dense: Predictor
    pruned: Pruned


def make_models(run: Trained) -> Models:
    """The models of a run; an error if its method must be told the task."""
    learner, method = run.learner, run.learner.method
    if method.needs_task_at_test:
        raise SnclError(
            f"{run.folder}: {run.experiment.method} predicts only when told the task, and an exported model takes "
            "nothing but images"
        )
    transform = run.stream.transform
    # The transform keeps the constants it has made once; making them here keeps them out of a trace.
    example = run.example()
    trained: nn.Module = _MethodPredictor(method, learner.net)
    if type(method).predict is Method.predict:
        found = pruned(learner.net, example)
        small: nn.Module = found.net
    else:  # it reads more of its network than the logits, and has no gates
        found, small = Pruned(trained, {}, 0.0), trained
    smaller = dense = Predictor(transform, small).eval()
    if found.layers:
        with evaluating(learner.net):
            dense = Predictor(transform, without_gates(learner.net.body, example)).eval()
    return Models(Predictor(transform, trained).eval(), smaller, dense, found)
