"""The fast engine does what the eager one does: same numbers, exact to resume, no waiting for the GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from resuming import goes_on_exactly, same
from torch import Tensor, nn

from sncl.errors import Diverged, SnclError
from sncl.memory.admission import LossAwareReservoir, Reservoir
from sncl.memory.memory import Memory
from sncl.methods.sgd import SGD
from sncl.methods.table import METHODS, Settings, make
from sncl.networks.norm import PassNorm
from sncl.networks.resnet import ResNet18
from sncl.networks.taps import Tapped
from sncl.streams.augmentation import Strong
from sncl.streams.transforms import CropFlip
from sncl.tensors.fields import Fields
from sncl.tensors.random import generator, seeded
from sncl.training.checkpoint import read_checkpoint
from sncl.training.descent import Descending, scale_steps
from sncl.training.engine import pack_drawn, shapes, unpack_drawn
from sncl.training.finite import STEPS_AT_ONCE
from sncl.training.learner import Learner
from sncl.training.parallel import run_in_threads
from sncl.training.step import Draw, StepInput

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
pytestmark = [  # what torch's compiler has to say about itself
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
TRANSFORM = CropFlip(2, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
CAPTURABLE = [name for name in METHODS if make(name).capturable]
VARIANTS: dict[str, Settings] = {
    "sncl grow": {"gates": "grow", "sparsity": 0.2, "start": 0.2, "fill": 0.1},  # in the middle of growth
    "sncl settle": {"gates": "grow", "sparsity": 0.4, "fill": 0.02, "settle": 0.1},  # in the middle of closing
    "sncl kl": {"gates": "kl", "eta": 0.01},
    "sncl off": {"gates": "off"},
}
SUBJECTS = [*CAPTURABLE, *VARIANTS]
ROWS = 8


STRONG = Strong(2, TRANSFORM.mean, TRANSFORM.std)
TRAINED: dict[str, Any] = {"optimizer": Descending(0.9, 1e-3, scaled=True), "clip": 1.5, "transform": STRONG}


def images(count: int) -> list[tuple[Tensor, Tensor]]:
    """Batches whose label is the brightest corner, and one short batch among them."""
    draw = generator(0, "engine tests")
    made = []
    for number in range(count):
        rows = 5 if number == count // 2 + 1 else ROWS
        y = torch.randint(4, (rows,), generator=draw)
        x = torch.randint(128, (rows, 3, 16, 16), dtype=torch.uint8, generator=draw)
        for corner in range(4):
            top, left = 8 * (corner // 2), 8 * (corner % 2)
            x[y == corner, :, top : top + 8, left : left + 8] += 127
        made.append((x, y))
    return made


def learner(name: str, engine: str = "auto", seed: int = 0, device: str = "cuda", **options: Any) -> Learner:
    with seeded(seed, "network"):
        net = ResNet18(4, 3, 8)
    settings = VARIANTS.get(name, {})
    method = make("sncl" if name in VARIANTS else name, settings)
    usual: dict[str, Any] = {"memory": 20, "replay": ROWS, "lr": 0.01, "transform": TRANSFORM}
    return Learner(net, method, seed=seed, device=device, engine=engine, **usual | options)


def feed(
    subject: Learner, rows: list[tuple[Tensor, Tensor]], start: int = 0, stop: int | None = None, late: int = 1000
) -> None:
    """Learn these batches, from the one with the number ``late`` on with a smaller step size."""
    rows = [(x.to(subject.device), y.to(subject.device)) for x, y in rows]
    half = len(rows) // 2
    for number in range(start, len(rows) if stop is None else stop):
        if number >= late:
            scale_steps(subject.ready.optimizer, 0.1)
        subject.learn(*rows[number])
        if subject.method.needs_boundaries and number + 1 == half:
            subject.boundary(*(torch.cat(each) for each in zip(*rows[:half], strict=True)))


def part_between_engines(made: Callable[[str], Learner], rows: list[tuple[Tensor, Tensor]], folder: Path) -> float:
    """How far apart the last of these steps leads, eager and as a graph, as a part of its length. From the same state,
    in single precision: the compiler only reorders sums. (Many steps would differ: so small a network under BatchNorm
    turns a millionth into everything within ten of them.)"""
    last = len(rows) - 1
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        begun, eager, graph = made("eager"), made("eager"), made("graph")
        feed(begun, rows, stop=last)
        begun.save(folder / "checkpoint")
        for each in (eager, graph):
            each.load(folder / "checkpoint")
            feed(each, rows, start=last)
    assert eager.steps == graph.steps == len(rows)
    before, ours, theirs = (
        torch.cat([value.detach().flatten() for value in each.net.parameters()]) for each in (begun, eager, graph)
    )
    moved = float((ours - before).norm())
    assert moved > 0
    return float((ours - theirs).norm()) / moved


@GPU
@pytest.mark.parametrize("name", SUBJECTS)
def test_eager_and_graph_make_the_same_step(name: str, tmp_path: Path) -> None:
    assert part_between_engines(lambda engine: learner(name, engine, precision="float32"), images(8), tmp_path) <= 1e-3


@GPU
@pytest.mark.parametrize("name", VARIANTS)
def test_eager_and_graph_make_the_same_step_of_the_whole_network(name: str, tmp_path: Path) -> None:
    """The shapes of Tiny ImageNet and a network of full width have kernels of their own."""

    def made(engine: str) -> Learner:
        with seeded(0, "network"):
            net = ResNet18(200)
        options: dict[str, Any] = {"memory": 64, "replay": 32, "lr": 0.03, "transform": TRANSFORM}
        return Learner(net, make("sncl", VARIANTS[name]), device="cuda", engine=engine, precision="float32", **options)

    draw = generator(0, "engine tests")
    rows = [
        (
            torch.randint(256, (32, 3, 64, 64), dtype=torch.uint8, generator=draw),
            torch.randint(20, (32,), generator=draw),
        )
        for _ in range(4)
    ]
    assert part_between_engines(made, rows, tmp_path) <= 1e-2


@GPU
@pytest.mark.parametrize("engine", ["eager", "graph"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_resumed_run_repeats_the_same_bits(name: str, engine: str, tmp_path: Path) -> None:
    rows = images(14)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        whole = learner(name, engine)
        feed(whole, rows)
        for stop in (4, 11):
            first, second = learner(name, engine), learner(name, engine)
            feed(first, rows, stop=stop)
            first.save(tmp_path / "checkpoint")
            second.load(tmp_path / "checkpoint")
            feed(second, rows, start=stop)
            assert same(whole, second)


def weigh(subject: Learner, rows: list[tuple[Tensor, Tensor]], start: int, stop: int) -> None:
    """Learn some of the batches, from the ninth on with weights, which are others in each."""
    for number in range(start, stop):
        x, y = (each.to(subject.device) for each in rows[number])
        weight = None if number < 8 else (number % 3) * torch.arange(len(y), device=subject.device) / len(y)
        subject.learn(x, y, weight)


@GPU
@pytest.mark.parametrize("engine", ["eager", "graph"])
@pytest.mark.parametrize("name", ["er", "sncl"])
def test_steps_with_weights_are_exact_to_resume(name: str, engine: str, tmp_path: Path) -> None:
    """Also over the batch that brings the first weights, behind which a graph is captured anew."""
    rows = images(20)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        for stop in (6, 14):
            assert goes_on_exactly(
                lambda seed: learner(name, engine, seed),
                lambda subject, start, stop: weigh(subject, rows, start, stop),
                *(stop, len(rows), tmp_path),
            )


@GPU
@pytest.mark.parametrize("name", ["er", "sncl"])
def test_a_graph_reads_the_weights_of_each_batch(name: str, tmp_path: Path) -> None:
    rows = images(16)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        graph, eager = (learner(name, each, precision="float32") for each in ("graph", "eager"))
        weigh(graph, rows, 0, 15)
        graph.save(tmp_path / "checkpoint")
        eager.load(tmp_path / "checkpoint")
        before = graph.state()["network/head.weight"]
        for each in (graph, eager):
            weigh(each, rows, 15, 16)  # of weight 0
        x, y = (each.cuda() for each in rows[14])
        for each in (graph, eager):
            each.learn(x, y, torch.linspace(0, 3, len(y), device="cuda"))
    ours, theirs = (each.state()["network/head.weight"] for each in (graph, eager))
    assert float((ours - theirs).norm()) <= 1e-3 * float((ours - before).norm())


@GPU
@pytest.mark.parametrize("engine", ["eager", "graph"])
@pytest.mark.parametrize("name", ["derpp", "sncl"])
def test_clipped_gradients_are_exact_to_resume(name: str, engine: str, tmp_path: Path) -> None:
    rows = images(24)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        bounded, free = learner(name, engine, clip=1.0), learner(name, engine)
        for subject in (bounded, free):
            feed(subject, rows)
        assert not torch.equal(bounded.state()["network/head.weight"], free.state()["network/head.weight"])
        assert goes_on_exactly(
            lambda seed: learner(name, engine, seed, clip=1.0),
            lambda subject, start, stop: feed(subject, rows, start, stop),
            *(16, len(rows), tmp_path),
        )


@GPU
@pytest.mark.parametrize("name", ["sgd", "er", "mer", "hal", "derpp+", "er-ace+", "sncl+"])
def test_eager_and_graph_make_the_same_step_with_all_settings_of_training(name: str, tmp_path: Path) -> None:
    """Also where the step size drops between two replays of one graph."""
    rows = images(16)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        graph, eager = (learner(name, each, precision="float32", **TRAINED) for each in ("graph", "eager"))
        feed(graph, rows, stop=15)
        graph.save(tmp_path / "checkpoint")
        eager.load(tmp_path / "checkpoint")
        before = torch.cat([value.detach().flatten() for value in graph.net.parameters()])
        for each in (graph, eager):
            feed(each, rows, 15, late=15)
    ours, theirs = (torch.cat([value.detach().flatten() for value in each.net.parameters()]) for each in (graph, eager))
    moved = float((ours - before).norm())
    assert moved > 0
    assert float((ours - theirs).norm()) <= 1e-3 * moved


@GPU
@pytest.mark.parametrize("engine", ["eager", "graph"])
@pytest.mark.parametrize("name", ["sgd", "er", "mer", "hal", "derpp+", "er-ace+", "sncl+"])
def test_settings_of_training_are_exact_to_resume(name: str, engine: str, tmp_path: Path) -> None:
    rows = images(24)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        for stop in (6, 16, 21):
            assert goes_on_exactly(
                lambda seed: learner(name, engine, seed, **TRAINED),
                lambda subject, start, stop: feed(subject, rows, start, stop, late=20),
                *(stop, len(rows), tmp_path),
            )


@GPU
@pytest.mark.parametrize("name", ["er", "sncl+"])
def test_momentum_is_no_reason_to_leave_the_graph(name: str) -> None:
    subject = learner(name, **TRAINED)
    assert subject.engine == learner(name, momentum=0.9, weight_decay=1e-3).engine == "graph"
    rows = [(x.cuda(), y.cuda()) for x, y in images(30) if len(y) == ROWS]
    for x, y in rows[:15]:
        subject.learn(x, y)
    try:
        torch.cuda.set_sync_debug_mode("error")
        for number, (x, y) in enumerate(rows[15:]):
            scale_steps(subject.ready.optimizer, 0.1 if number % 2 else 1.0)
            subject.learn(x, y)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@GPU
@pytest.mark.parametrize("engine", ["eager", "graph"])
@pytest.mark.parametrize("name", ["er", "derpp", "sncl", "lwf", "hal"])
def test_a_run_that_grows_is_exact_to_resume(name: str, engine: str, tmp_path: Path) -> None:
    rows = [(x, y.clamp(max=1 + number // 5)) for number, (x, y) in enumerate(images(14))]

    def growing() -> Learner:
        with seeded(0, "network"):
            net = ResNet18(2, 3, 8)
        return Learner(
            net, name, memory=20, replay=ROWS, lr=0.01, transform=TRANSFORM, device="cuda", engine=engine, grow=True
        )

    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        whole = growing()
        feed(whole, rows)
        assert whole.grown == [3, 4]
        for stop in (4, 8, 12):
            first, second = growing(), growing()
            feed(first, rows, stop=stop)
            first.save(tmp_path / "checkpoint")
            second.load(tmp_path / "checkpoint")
            feed(second, rows, start=stop)
            assert same(whole, second)


@GPU
@pytest.mark.parametrize("name", SUBJECTS)
def test_no_step_waits_for_the_gpu(name: str) -> None:
    rows = [(x.cuda(), y.cuda()) for x, y in images(30) if len(y) == ROWS]
    subject = learner(name)
    for x, y in rows[:15]:
        subject.learn(x, y)
    try:
        torch.cuda.set_sync_debug_mode("error")
        for x, y in rows[15:]:
            subject.learn(x, y)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@GPU
def test_runs_beside_each_other_give_the_same_bits_as_alone() -> None:
    rows = images(40)

    def run(job: tuple[str, int], report: object) -> Learner:
        subject = learner(job[0], seed=job[1])
        feed(subject, rows)
        return subject

    jobs = [(name, seed) for name in ("derpp", "sncl") for seed in (0, 1)]
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        together = run_in_threads(run, jobs, at_once=4)
        alone = [run(job, None) for job in jobs]
    assert all(same(first, second) for first, second in zip(together, alone, strict=True))


@GPU
@pytest.mark.parametrize("rule", [Reservoir, LossAwareReservoir])
def test_a_memory_on_the_gpu_keeps_what_one_on_the_cpu_keeps(rule: type[Reservoir]) -> None:
    draw = generator(0, "memories")
    here, there = Memory(30, rule()), Memory(30, rule(), "cuda")
    for number in range(60):
        y, loss = torch.randint(5, (ROWS,), generator=draw), torch.rand(ROWS, generator=draw)
        incoming = {"x": number * ROWS + torch.arange(ROWS), "y": y, "loss": loss}
        uniform = torch.rand(ROWS, 3, dtype=torch.float64, generator=draw)
        here.admit(incoming, uniform)
        there.admit({name: value.cuda() for name, value in incoming.items()}, uniform)
    for name, value in here.fields.items():
        assert torch.equal(value, there.fields[name].cpu())


@GPU
@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_a_run_that_diverges_on_a_gpu_is_noticed_within_some_steps(engine: str) -> None:
    rows = [(x.cuda(), y.cuda()) for x, y in images(10) if len(y) == ROWS]
    subject = learner("er", engine, precision="float32")
    subject.learn(*rows[0])
    with torch.no_grad():
        next(subject.net.parameters()).fill_(torch.nan)
    with pytest.raises(Diverged, match="became nan by step 2"):
        for _ in range(STEPS_AT_ONCE + 1):
            subject.learn(*rows[1])
    assert subject.steps <= STEPS_AT_ONCE
    with pytest.raises(Diverged):
        subject.predict(rows[0][0])


@GPU
@pytest.mark.parametrize("name", ["sncl grow", "icarl", "er"])
def test_a_snapshot_on_a_gpu_is_what_the_learner_was(name: str) -> None:
    subject, (probe, _) = learner(name), images(1)[0]
    feed(subject, images(8))
    expected, snapshot = subject.logits(probe), subject.snapshot()
    feed(subject, images(12))
    assert torch.equal(snapshot.logits(probe), expected)
    assert not torch.equal(subject.logits(probe), expected)


@GPU
def test_a_memory_on_the_gpu_has_its_full_length_at_once_or_says_what_it_takes(tmp_path: Path) -> None:
    subject = learner("er", memory=5000)
    feed(subject, images(4))
    assert subject.memory is not None and subject.memory.allocated == 5000
    subject.save(tmp_path / "saved")
    assert read_checkpoint(tmp_path / "saved")[0]["memory/rows/x"].shape[0] == len(subject.memory) < 100
    other = learner("er", memory=5000)
    other.load(tmp_path / "saved")
    for each in (subject, other):
        feed(each, images(12), start=4)
    assert same(subject, other)
    with pytest.raises(SnclError, match=r"a `memory` of 10,000,000,000 samples .* GiB, for which cuda"):
        feed(learner("er", memory=10**10), images(2))


@GPU
def test_the_losses_of_a_step_stay_what_they_were() -> None:
    subject = learner("sncl")
    rows = [(x.cuda(), y.cuda()) for x, y in images(12)]
    losses = [subject.learn(x, y) for x, y in rows]
    assert len({float(each["labels"]) for each in losses}) == len(rows)


@GPU
def test_a_gpu_learns_in_bfloat16_through_a_graph_unless_told_otherwise() -> None:
    assert (learner("sncl").precision, learner("sncl").engine) == (torch.bfloat16, "graph")
    assert learner("gem").engine == "eager"
    assert learner("pnn").precision == torch.float32  # which does not learn in bfloat16
    exact = learner("sncl", "eager", precision="float32")
    assert (exact.precision, exact.engine) == (torch.float32, "eager")


def test_the_cpu_has_single_precision_and_no_graph() -> None:
    subject = learner("sncl", device="cpu")
    assert (subject.precision, subject.engine) == (torch.float32, "eager")
    with pytest.raises(SnclError, match="needs a CUDA device, not cpu; use auto or eager"):
        learner("sncl", "graph", device="cpu")
    with pytest.raises(SnclError, match="the engine is auto, eager or graph, not 'jit'"):
        learner("sncl", "jit", device="cpu")
    with pytest.raises(SnclError, match="bfloat16 needs a CUDA device, not cpu; use auto or float32"):
        learner("sncl", device="cpu", precision="bfloat16")
    with pytest.raises(SnclError, match="the precision is auto, float32 or bfloat16, not 'float16'"):
        learner("sncl", device="cpu", precision="float16")


# --- the input of a step -----------------------------------------------------------------------------------------


def step_input(draws: int, size: int = 5) -> StepInput:
    numbers = generator(0, "step input")
    drawn = (
        Draw(torch.randperm(7, generator=numbers)[:4], torch.rand(4, 3, generator=numbers, dtype=torch.float64))
        for _ in range(draws)
    )
    batch = {"x": torch.rand(size, 2, generator=numbers), "y": torch.arange(size)}
    return StepInput(batch, torch.rand(size, 3, generator=numbers, dtype=torch.float64), tuple(drawn))


@pytest.mark.parametrize("draws", [0, 1, 2])
def test_what_is_drawn_on_the_host_travels_as_one_tensor(draws: int) -> None:
    given = step_input(draws)
    packed = pack_drawn(given.drawn())
    assert packed.dtype == torch.float64 and packed.shape == (15 + 16 * draws,)
    found = unpack_drawn(given, packed)
    assert found.batch is given.batch and len(found.draws) == draws
    for ours, theirs in zip(found.drawn(), given.drawn(), strict=True):
        assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype


def test_one_captured_step_serves_inputs_of_the_same_shapes() -> None:
    assert shapes(step_input(1)) == shapes(step_input(1)._replace(numbers=torch.zeros(5, 3, dtype=torch.float64)))
    others = [step_input(0), step_input(2), step_input(1, size=4), step_input(1)._replace(numbers=torch.zeros(5, 3))]
    assert len({shapes(each) for each in (step_input(1), *others)}) == 5


class Straying(SGD):
    """Leaves parameters out of the optimiser, as the variance of a gate is, and looks at their gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []

    def parameter_groups(self, net: Tapped, lr: float) -> list[dict[str, Any]]:
        return [{"params": list(net.parameters())[:-1], "lr": lr}]

    def after_update(self, net: Tapped, now: Fields) -> None:
        *_, last = net.parameters()
        assert last.grad is not None
        self.found.append(last.grad.clone())


def test_gradients_do_not_add_up_where_no_optimiser_clears_them() -> None:
    torch.manual_seed(0)
    method = Straying()
    subject = Learner(nn.Linear(4, 3), method, lr=1e-9, device="cpu")
    x, y = torch.rand(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    for _ in range(3):
        subject.learn(x, y)
    assert all(torch.allclose(each, method.found[0], atol=1e-6) for each in method.found)


# --- passes that run as one --------------------------------------------------------------------------------------


def passes(net: nn.Module, inputs: list[Tensor], joined: bool) -> list[Tensor]:
    tapped = Tapped(net)
    tapped.joins = joined
    return [each.logits for each in tapped.passes(*inputs)]


@pytest.mark.parametrize("sizes", [(6, 6, 6), (6, 4, 5)])
@pytest.mark.parametrize("compiled", [False, True])
def test_joined_passes_are_the_separate_ones(sizes: tuple[int, ...], compiled: bool) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(size, 3, 16, 16) * (number + 1) + number for number, size in enumerate(sizes)]
    torch.manual_seed(0)
    alone = ResNet18(4, 3, 8)
    torch.manual_seed(0)
    together = ResNet18(4, 3, 8)
    run = torch.compile(passes, backend="eager", dynamic=False) if compiled else passes
    expected, found = passes(alone, inputs, False), run(together, inputs, True)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    for each in (expected, found):
        sum(part.square().sum() * (number + 1) for number, part in enumerate(each)).backward()  # type: ignore[union-attr]
    for ours, theirs in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-3 * float(theirs.grad.abs().max()), rtol=1e-3)
    for ours, theirs in zip(together.buffers(), alone.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_a_pass_by_itself_is_plain_batch_norm() -> None:
    torch.manual_seed(0)
    x, plain, ours = torch.randn(6, 3, 4, 4), nn.BatchNorm2d(3), PassNorm(3)
    assert torch.equal(ours(x), plain(x)) and torch.equal(ours.running_var, plain.running_var)
    assert torch.equal(ours.eval()(x), plain.eval()(x))
