"""Which samples of a stream an analysis looks at."""

import torch

from sncl.analysis.samples import TrainingSamples, samples_of_test, samples_of_tests
from sncl.runs.loading import Trained


def test_samples_are_the_streams_own_and_follow_from_the_seed(plain: Trained) -> None:
    stream = plain.stream
    everything = TrainingSamples(stream, 0, seed=0)
    assert len(everything) == sum(len(phase.rows) for phase in stream.phases)
    labels = torch.cat([y for _, y in everything])
    assert torch.equal(labels.bincount(), stream.y[torch.cat([phase.rows for phase in stream.phases])].bincount())
    few = TrainingSamples(stream, 40, seed=0)
    assert len(few) == sum(len(y) for _, y in few) == 40
    assert len({(task, int(place)) for task, places in enumerate(few.positions) for place in places}) == 40
    again, other = (TrainingSamples(stream, 40, seed=seed) for seed in (0, 1))
    assert all(torch.equal(a, b) for a, b in zip(few.positions, again.positions, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(few.positions, other.positions, strict=True))
    assert [len(y) for _, y in samples_of_tests(stream, 10, seed=0)] == [4, 4, 4]
    assert torch.equal(samples_of_test(stream, 1, 0, seed=0)[0], stream.test(1)[0])
    x, y = samples_of_test(stream, 1, 5, seed=3)
    whole, labels = stream.test(1)
    assert len(y) == 5
    for row, label in zip(x, y, strict=True):
        same = (whole == row).flatten(1).all(1)
        assert same.any() and (labels[same] == label).all()
