"""``sncl export``: a file that predicts what the run does, and an honest account of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from command_line import Sncl
from torch import Tensor

from sncl.errors import SnclError
from sncl.export import account_file, choose_format, export, measures
from sncl.methods.table import METHODS
from sncl.networks.gating.attach import attach_gates, gates
from sncl.networks.pruning.prune import prune
from sncl.networks.pruning.scales import count_parameters, without_gates
from sncl.networks.pruning.scales import scales as scales_left
from sncl.networks.resnet import ResNet18
from sncl.runs.loading import load_run
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.runs.result import RESULT
from sncl.streams.transforms import CropFlip
from sncl.training.exporting import formats
from sncl.training.exporting.formats import FORMATS
from sncl.training.exporting.models import RawPredictor
from sncl.training.parallel import cores

SPARSE = {"gates": "grow", "sparsity": "0.5"}


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "TURN_SECONDS", 0.0)


def train(folder: Path, method: str, stream: str, settings: dict[str, str]) -> Path:
    perform(
        plan(stream, method, memory=30, tasks=2, epochs=1, device="cpu", settings={"width": "20"} | settings), folder
    )
    return folder


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("sparse"), "sncl", "perm-digits", SPARSE)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("plain"), "er", "seq-digits", {})


def load_onnx(file: Path) -> Callable[[Tensor], Tensor]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (images,), (logits,) = session.get_inputs(), session.get_outputs()
    assert (images.name, images.type, images.shape) == ("images", "tensor(uint8)", ["rows", 1, 8, 8])
    assert (logits.name, logits.type, logits.shape) == ("logits", "tensor(float)", ["rows", 10])
    return lambda x: torch.from_numpy(session.run(None, {"images": x.numpy()})[0])


def load_program(file: Path) -> Callable[[Tensor], Tensor]:
    return torch.export.load(file).module()


LOADERS = {"onnx": load_onnx, "torch": load_program}


@pytest.mark.parametrize("form", list(FORMATS))
def test_the_file_predicts_what_the_run_does_with_fewer_neurons(
    sncl: Sncl, sparse: Path, tmp_path: Path, form: str
) -> None:
    file = tmp_path / f"small{FORMATS[form].suffix}"
    account = sncl("export", sparse, f"--{form}", "-o", file, "--json").json()
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, account_file(file).name]
    assert account == json.loads(account_file(file).read_text())
    run, model = load_run(sparse, device="cpu"), LOADERS[form](file)
    for task in range(2):
        x, _ = run.stream.test(task)
        wanted = run.learner.logits(x)
        for rows in (1, 2, len(x)):
            torch.testing.assert_close(model(x[:rows]), wanted[:rows], atol=1e-5, rtol=1e-5)
    first, second = (int(gate.is_open().sum()) for _, gate in gates(run.learner.net))
    assert 0 < first < 20 and 0 < second < 20
    assert account["pruned"]["parameters"] == 65 * first + (first + 1) * second + (second + 1) * 10
    assert account["trained"]["parameters"] == 65 * 20 + 21 * 20 + 21 * 10 + 40
    assert account["dense"]["parameters"] == 65 * 20 + 21 * 20 + 21 * 10
    assert account["pruned"]["multiply_adds"] == 64 * first + first * second + second * 10
    assert account["dense"]["multiply_adds"] == 64 * 20 + 20 * 20 + 20 * 10
    assert account["exported"]["bytes"] == file.stat().st_size < account["dense"]["bytes"]
    for key in ("parameters", "multiply_adds"):
        assert account["exported"][key] == account["pruned"][key]
        wanted = 100 * account["pruned"][key] / account["dense"][key]
        assert account["left_percent"][key] == pytest.approx(wanted, abs=0.005)
    for name in ("trained", "pruned", "dense", "exported", "left_percent"):
        assert list(account[name]["milliseconds"]) == ["1", "64"] and min(account[name]["milliseconds"].values()) > 0
    assert account["machine"].keys() == {"processor", "cores", "threads", "load"}
    assert account["machine"]["threads"] == min(2, cores())
    assert account["exported"]["accuracy"] == account["trained"]["accuracy"] == pytest.approx(run.result.accuracy)
    assert account["test_rows"] == 720 and account["largest_logit_difference"] < 1e-4
    assert f"{first + second} of 40 gated neurons are open; {40 - first - second} were removed" in account["summary"]
    assert b".py" not in file.read_bytes()  # no file of the machine it was made on


def test_the_table(sncl: Sncl, sparse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)
    done = sncl("export", sparse, "--torch", "-o", "model.pt2")
    assert (done.code, done.err) == (0, "model: model.pt2\n")
    monkeypatch.setattr("os.getloadavg", lambda: (64.5, 1.0, 1.0), raising=False)
    busy = sncl("export", sparse, "--torch", "-o", "busy.pt2").err
    assert busy.startswith("note: the machine was busy (load 64.5, ") and busy.endswith("model: busy.pt2\n")
    lines = done.out.splitlines()
    assert lines[0].split() == ["trained", "pruned", "dense", ".pt2", "model.pt2", "left,", "%"]
    assert [line.split()[0] for line in lines[1:7]] == [
        "parameters",
        "bytes",
        "multiply-adds,",
        "ms,",
        "ms,",
        "Domain-IL,",
    ]
    assert [line.split()[1:3] for line in lines[4:6]] == [["1", "row"], ["64", "rows"]]
    *_, dense, exported, left = lines[1].split()
    wanted = 100 * int(exported.replace(",", "")) / int(dense.replace(",", ""))
    assert float(left) == pytest.approx(wanted, abs=0.051) and lines[6].split()[-1] == "–"
    assert "were removed" in done.out and "the same predictions on all 720 test rows" in done.out
    threads = min(2, cores())
    assert f"in turns on this machine's CPU with {threads} thread{'s' * (threads > 1)}\n" in done.out
    assert torch.get_num_threads() == 1  # as it was


def test_it_says_so_when_nothing_is_removed(plain: Path, sparse: Path, tmp_path: Path) -> None:
    account = export(load_run(plain, device="cpu"), FORMATS["torch"], tmp_path / "plain.pt2", lambda _: None)
    assert account["summary"] == "the network has no gates, so nothing was removed"
    assert account["pruned"]["parameters"] == account["trained"]["parameters"] == account["dense"]["parameters"]
    assert account["left_percent"]["bytes"] == account["left_percent"]["multiply_adds"] == 100
    run = load_run(sparse, device="cpu")
    for _, gate in gates(run.learner.net):
        gate.get_buffer("opened").fill_(True)
    account = export(run, FORMATS["torch"], tmp_path / "open.pt2", lambda _: None)
    assert account["summary"].startswith("all 40 gated neurons are open, so no neuron was removed")
    assert account["pruned"]["parameters"] == account["trained"]["parameters"] - 40 == account["dense"]["parameters"]
    assert account["left_percent"]["parameters"] == account["left_percent"]["multiply_adds"] == 100


@pytest.mark.parametrize("form", list(FORMATS))
def test_a_method_that_predicts_in_its_own_way(tmp_path: Path, form: str) -> None:
    run = load_run(train(tmp_path / "run", "icarl", "seq-digits", {}), device="cpu")
    file = tmp_path / f"model{FORMATS[form].suffix}"
    export(run, FORMATS[form], file, lambda _: None)
    x, _ = run.stream.test(0)
    wanted, found = run.learner.logits(x), LOADERS[form](file)(x)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-5)
    assert torch.equal(found.argmax(1), wanted.argmax(1))


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHODS if name != "pnn"])
def test_every_method_is_exported(tmp_path: Path, method: str) -> None:
    run = load_run(train(tmp_path / "run", method, "seq-digits", {}), device="cpu")
    account = export(run, FORMATS["onnx"], tmp_path / "model", lambda _: None)
    assert account["exported"]["accuracy"] == account["trained"]["accuracy"]


def test_other_predictions_are_refused_and_nothing_is_written(plain: Path, tmp_path: Path) -> None:
    run = load_run(plain, device="cpu")

    def spoiled(content: bytes) -> Callable[[Tensor], Tensor]:
        model = FORMATS["torch"].load(content)
        return lambda images: -model(images)

    with pytest.raises(SnclError, match=r"another class than the network for .* samples .* nothing was written"):
        export(run, FORMATS["torch"]._replace(load=spoiled), tmp_path / "model.pt2", lambda _: None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("ahead", "refused"), [(1e-6, False), (1e-2, True)])
def test_only_classes_that_tie_may_change_places(plain: Path, ahead: float, refused: bool) -> None:
    run = load_run(plain, device="cpu")
    head = run.learner.net.body.get_submodule("head")
    for parameter in head.parameters():
        torch.nn.init.zeros_(parameter)
    with torch.no_grad():
        head.get_parameter("bias")[5] = ahead

    def other(images: Tensor) -> Tensor:
        return 1e-6 * torch.eye(10)[3].expand(len(images), 10)

    if refused:
        with pytest.raises(SnclError, match="another class"):
            measures.compare_predictions(run.stream, run.learner.logits, run.stream, other)
    else:
        assert measures.compare_predictions(
            run.stream, run.learner.logits, run.stream, other
        ).difference == pytest.approx(1e-6)


def test_errors_are_one_line(sncl: Sncl, sparse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: str | Path) -> str:
        done = sncl("export", *arguments)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        return done.err

    assert "no run folder" in fails(tmp_path / "nowhere", "--torch")
    unfinished = tmp_path / "unfinished"
    shutil.copytree(sparse, unfinished)
    (unfinished / RESULT).unlink()
    assert "is not finished" in fails(unfinished, "--torch")
    assert "either --onnx or --torch" in fails(sparse, "--torch", "--onnx")
    assert "ends in .onnx or .pt2, not model.pth" in fails(sparse, "-o", "model.pth")
    assert "ends in .pt2, not model.onnx" in fails(sparse, "--torch", "-o", "model.onnx")
    assert "a folder that exists" in fails(sparse, "-o", tmp_path / "nowhere" / "model.pt2")
    told = train(tmp_path / "told", "pnn", "seq-digits", {})
    assert "pnn predicts only when told the task" in fails(told, "--torch")
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    assert "an ONNX file needs onnx and onnxscript and onnxruntime: pip install onnx onnxscript onnxruntime" in fails(
        sparse
    )


def test_a_file_that_is_there_is_replaced_only_by_force(sncl: Sncl, sparse: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.pt2"
    file.write_bytes(b"old")
    done = sncl("export", sparse, "-o", file)
    assert done.code == 2 and f"{file} is there already; --force replaces it" in done.err
    assert file.read_bytes() == b"old"
    assert sncl("export", sparse, "-o", file, "--force").code == 0
    assert load_program(file)(torch.zeros(1, 1, 8, 8, dtype=torch.uint8)).shape == (1, 10)


@pytest.mark.parametrize("form", [pytest.param("onnx", marks=pytest.mark.slow), "torch"])
def test_a_resnet_with_its_normalisation(form: str) -> None:
    torch.manual_seed(0)
    view = CropFlip(4, (0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    images = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8)
    net = attach_gates(ResNet18(5, width=4), view.eval(images))
    for _, gate in gates(net):
        with torch.no_grad():
            gate.log_variance[::3] = 5.0
    model = RawPredictor(view, prune(net, view.eval(images))).eval()
    exported = FORMATS[form].load(FORMATS[form].make(model, torch.zeros_like(images), "images", {}))
    more = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8)
    with torch.no_grad():
        torch.testing.assert_close(exported(more), net.eval()(view.eval(more)), atol=1e-5, rtol=1e-5)


def test_exact_counts_of_a_resnet_with_closed_channels() -> None:
    """Channels between the two convolutions of a block go alone; each stage has side 16, 8, 4 or 2."""
    torch.manual_seed(0)
    x = torch.rand(2, 3, 16, 16)
    net = attach_gates(ResNet18(5, width=4), x).eval()
    closed = {name: number for number, (name, _) in enumerate(gates(net)) if name.endswith("relu1")}
    for name, gate in gates(net):
        with torch.no_grad():
            gate.log_variance[: closed.get(name, 0) % 4] = 5.0
    dense, small = without_gates(net, x), prune(net, x)
    plain = ResNet18(5, width=4)
    assert count_parameters(dense) == count_parameters(plain) == sum(each.numel() for each in plain.parameters())
    parameters, products = count_parameters(dense), measures.count_multiply_adds(dense, x[:1])
    shapes = [(4 * 2**stage, 16 // 2**stage) for stage in range(4)]  # channels and side
    widths = [4, *(width for width, _ in shapes)]
    assert products == 27 * 4 * 16**2 + 32 * 5 + sum(
        side**2 * (9 * before * width + 3 * 9 * width**2 + before * width * (stage > 0))
        for stage, (before, (width, side)) in enumerate(zip(widths, shapes, strict=False))
    )
    scales = sum(len(scale.factor) for _, scale in scales_left(small))
    for name, number in closed.items():
        stage, block = int(name[5]) - 1, int(name[7])
        width, side = shapes[stage]
        read = width if block else widths[stage]
        parameters -= number % 4 * (9 * read + 2 + 9 * width)  # a filter, its normalisation, and what reads it
        products -= number % 4 * side**2 * (9 * read + 9 * width)
    assert any(number % 4 for number in closed.values())
    assert (count_parameters(small) - scales, measures.count_multiply_adds(small, x[:1])) == (parameters, products)


def test_models_take_turns_in_measurements() -> None:
    called: list[tuple[str, int]] = []

    def model(name: str) -> Callable[[Tensor], Tensor]:
        def predict(images: Tensor) -> Tensor:
            called.append((name, len(images)))
            return images

        return predict

    found = measures.latencies({"a": model("a"), "b": model("b")}, torch.zeros(64, 1))
    for size in measures.TIMED_BATCHES:
        assert [name for name, rows in called if rows == size] == ["a", "a", "b", "b"] * measures.ROUNDS
    assert found.keys() == {"a", "b"} and list(found["a"]) == ["1", "64"]


def test_a_format_is_chosen_by_its_name_or_by_the_files(tmp_path: Path) -> None:
    assert choose_format(None, tmp_path / "model.pt2") is choose_format("torch", None) is FORMATS["torch"]
    with pytest.raises(SnclError, match=r"ends in \.pt2, not model\.onnx"):
        choose_format("torch", tmp_path / "model.onnx")


def test_what_a_format_needs_is_said_in_the_librarys_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    with pytest.raises(SnclError, match=r"pip install onnx onnxscript onnxruntime; `torch` needs neither"):
        choose_format(None, None)
