"""The peers of peers.py, each as something that predicts and learns batches of the stream in a form of its own.

All networks are the same, with two hidden layers of 100, the same step size and the same memory; all else is what the
library does where nothing is said. Nothing is tuned, ours neither.
"""

import re
import sys
import types
import warnings
from importlib.util import find_spec

import numpy as np

HIDDEN, LR = (100, 100), 0.03
MEMORY, REPLAY = 200, 32
CLASSES = np.arange(10)


class RiverModel:
    """River: one row after the other, as dictionaries."""

    def __init__(self, name: str, features: int, seed: int) -> None:
        from river import linear_model, optim, tree

        self.model = {
            "Hoeffding tree": tree.HoeffdingTreeClassifier,
            "softmax regression": lambda: linear_model.SoftmaxRegression(optim.SGD(LR)),
        }[name]()

    def native(self, x, y):
        return [dict(enumerate(row)) for row in x.tolist()], y.tolist()

    def predict(self, x):
        return [self.model.predict_one(row) for row in x]

    def learn(self, x, y):
        for row, label in zip(x, y, strict=True):
            self.model.learn_one(row, label)


class SklearnModel:
    """scikit-learn's ``partial_fit``."""

    def __init__(self, name: str, features: int, seed: int) -> None:
        from sklearn.linear_model import SGDClassifier
        from sklearn.neural_network import MLPClassifier

        self.model = {
            "SGDClassifier": lambda: SGDClassifier(loss="log_loss", random_state=seed),
            "MLPClassifier": lambda: MLPClassifier(
                HIDDEN, solver="sgd", learning_rate_init=LR, momentum=0.0, alpha=0.0, random_state=seed
            ),
        }[name]()

    def native(self, x, y):
        return x, y

    def predict(self, x):
        return self.model.predict(x) if hasattr(self.model, "classes_") else np.full(len(x), -1)

    def learn(self, x, y):
        self.model.partial_fit(x, y, classes=CLASSES)


class OurEstimator(SklearnModel):
    """The same through ours; classes need no names beforehand."""

    def __init__(self, name: str, features: int, seed: int) -> None:
        import torch

        from sncl import ContinualClassifier

        torch.set_num_threads(1)
        shared = {"memory": MEMORY, "replay": REPLAY, "lr": LR, "hidden": HIDDEN, "random_state": seed}
        self.model = ContinualClassifier(name, **shared)

    def learn(self, x, y):
        self.model.partial_fit(x, y)


class OurLearner:
    """A learner of ours."""

    def __init__(self, name: str, features: int, seed: int) -> None:
        import torch

        from sncl import Learner

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.model = Learner(network(features), name, memory=MEMORY, replay=REPLAY, lr=LR, seed=seed, device="cpu")
        self.learned = False

    def native(self, x, y):
        import torch

        return torch.from_numpy(x), torch.from_numpy(y)

    def predict(self, x):
        return self.model.predict(x).numpy() if self.learned else np.full(len(x), -1)

    def learn(self, x, y):
        self.model.learn(x, y)
        self.learned = True


class AvalancheModel:
    """A strategy of Avalanche, which learns whole tasks."""

    def __init__(self, name: str, features: int, seed: int) -> None:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        warnings.simplefilter("ignore")
        stand_in()
        from avalanche.training import DER, Replay
        from avalanche.training.plugins import EvaluationPlugin

        make, more = {
            "Replay": (Replay, {}),
            "DER": (DER, {"batch_size_mem": REPLAY, "alpha": 0.5, "beta": 0.0}),
            "DER++": (DER, {"batch_size_mem": REPLAY, "alpha": 0.5, "beta": 0.5}),
        }[name]
        self.net = network(features)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=LR)
        shared = {
            "model": self.net,
            "optimizer": optimizer,
            "criterion": torch.nn.CrossEntropyLoss(),
            "mem_size": MEMORY,
        }
        shared |= {"evaluator": EvaluationPlugin()}  # which says nothing
        self.strategy = lambda batch, epochs: make(**shared, **more, train_mb_size=batch, train_epochs=epochs)

    def learn_tasks(self, tasks, batch, epochs):
        import torch
        from avalanche.benchmarks import benchmark_from_datasets
        from avalanche.benchmarks.scenarios.task_aware import task_incremental_benchmark
        from avalanche.benchmarks.utils import as_classification_dataset

        sets = []
        for x, y in tasks:
            each = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
            each.targets = y.tolist()
            sets.append(as_classification_dataset(each))
        strategy = self.strategy(batch, epochs)
        for experience in task_incremental_benchmark(benchmark_from_datasets(train=sets)).train_stream:
            strategy.train(experience)

    def native(self, x, y):
        return x, y

    def predict(self, x):
        import torch

        self.net.eval()
        with torch.no_grad():
            return self.net(torch.from_numpy(x)).argmax(1).numpy()


def network(features: int):
    """The network of all that learn with PyTorch."""
    from torch import nn

    net = nn.Sequential(
        nn.Linear(features, HIDDEN[0]), nn.ReLU(), nn.Linear(*HIDDEN), nn.ReLU(), nn.Linear(HIDDEN[1], len(CLASSES))
    )
    for layer in net[::2]:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return net


def stand_in() -> None:
    """Stand in for what Avalanche imports and these streams never call: parts that need CUDA or are not installed.

    torchvision of PyPI wants PyTorch's CUDA libraries for its operators, qpsolvers is for GEM and wandb for its logger.
    """
    import torch

    for name, imported in (("qpsolvers", {"solve_qp": None}), ("wandb", {})):
        if name not in sys.modules and find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            vars(sys.modules[name]).update(imported)
    library = torch.library.Library("torchvision", "FRAGMENT")
    for _ in range(10):
        try:
            import torchvision  # noqa: F401

            break
        except RuntimeError as error:
            found = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if found is None:
                raise
            library.define(f"{found[1]}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            for name in [each for each in sys.modules if each.partition(".")[0] == "torchvision"]:
                del sys.modules[name]
    stand_in.kept = library  # operators live as long as it does


class Peer:
    """``kind`` makes it, ``package`` is what it needs, ``streams`` are those it learns."""

    def __init__(self, kind, package: str, title: str, name: str, streams: tuple[str, ...]) -> None:
        self.kind, self.package, self.title, self.name, self.streams = kind, package, title, name, streams


ALL = ("rows", "batches", "digits", "mnist")
RIVER, ONLINE, TASKS = ("rows", "digits"), ("rows", "batches"), ("digits", "mnist")
PEERS = [
    Peer(RiverModel, "river", "River, Hoeffding tree", "Hoeffding tree", RIVER),
    Peer(RiverModel, "river", "River, softmax regression", "softmax regression", RIVER),
    Peer(SklearnModel, "sklearn", "scikit-learn, SGDClassifier", "SGDClassifier", ALL),
    Peer(SklearnModel, "sklearn", "scikit-learn, MLPClassifier", "MLPClassifier", ALL),
    Peer(AvalancheModel, "avalanche", "Avalanche, Replay", "Replay", TASKS),
    Peer(AvalancheModel, "avalanche", "Avalanche, DER", "DER", TASKS),
    Peer(AvalancheModel, "avalanche", "Avalanche, DER++", "DER++", TASKS),
    *(
        Peer(kind, "sncl", f"sncl, {title}, {through}", name, streams)
        for title, name in (("ER", "er"), ("DER++", "derpp"), ("SNCL", "sncl"))
        for kind, through, streams in ((OurLearner, "Learner", ALL), (OurEstimator, "estimator", ONLINE))
    ),
]
