"""``sncl export`` of runs on the user's data: the file, used without sncl, predicts what the run does.

Rows are read and prepared here by hand, from the file and from what its metadata say.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Sncl
from numpy.typing import NDArray
from PIL import Image
from used_runs import TEST_ROWS, float_images, gappy_flowers, numbers_only, read_csv, save_split, train_on
from user_files import HEADER, Rows, flowers, save_digits, save_small_images

import sncl as package
from sncl.export import measures
from sncl.runs.loading import load_run

Metadata = dict[str, str]
Model = Callable[[NDArray[Any]], NDArray[Any]]


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "TURN_SECONDS", 0.0)


def opened(file: Path) -> tuple[Model, Metadata, str]:
    """A model, what the file says of it, and the type of its input."""
    if file.suffix == ".onnx":
        session = pytest.importorskip("onnxruntime").InferenceSession(str(file), providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        return (
            lambda x: session.run(["logits"], {given.name: x})[0],
            session.get_modelmeta().custom_metadata_map,
            f"{given.name} {given.type}",
        )
    texts = dict.fromkeys(("model_format", "sncl_version", "class_names", "preprocessing", "stream", "method"), "")
    program = torch.export.load(file, extra_files=texts).module()
    return lambda x: program(torch.from_numpy(x)).detach().numpy(), texts, ""


def named_predictions(model: Model, metadata: Metadata, x: NDArray[Any]) -> list[str]:
    names = json.loads(metadata["class_names"])
    return [names[place] for place in model(x).argmax(1).tolist()]


def encoded_by_hand(metadata: Metadata, rows: Rows) -> NDArray[np.float64]:
    """Columns as the metadata say: numbers, where they are missing, and categories."""
    encoder = json.loads(metadata["preprocessing"])["encoder"]
    width = {"number": 1, "category": 0}
    columns: list[list[float]] = []
    for facts in encoder["columns"]:
        values = [row[HEADER.index(facts["name"])] for row in rows]
        if facts["kind"] == "category":
            known = [each or "" for each in facts["known"]]
            columns += [[float(slot < len(known) and value == known[slot]) for value in values] for slot in range(16)]
            assert facts["slots"] == 16
        else:
            assert width[facts["kind"]] == 1
            columns.append([facts["mean"] if value == "" else float(value) for value in values])
            if facts["indicator"]:
                columns.append([float(value == "") for value in values])
    return np.array(columns).T


def run_predictions(folder: Path) -> list[list[str]]:
    """What the run itself predicts, task by task."""
    run = load_run(folder, device="cpu")
    names = run.stream.names
    tests = (run.learner.predict(run.stream.test(task)[0]).tolist() for task in range(run.stream.test_tasks))
    return [[names[place] for place in found] for found in tests]


def by_task(folder: Path, predictions: list[str]) -> list[list[str]]:
    """Predictions for all test rows in file order, as the tasks have them."""
    return [[predictions[row] for row in phase.rows.tolist()] for phase in load_run(folder).stream.test_phases]


@pytest.mark.parametrize("form", ["onnx", "torch"])
def test_a_table_of_numbers(sncl: Sncl, tmp_path: Path, form: str) -> None:
    """Also one with values of 10^9 and a bit: rows are taken in double precision."""
    rows = numbers_only([[*row[:3], row[3] + 1e9, *row[4:]] for row in flowers()])
    table = save_split(tmp_path / "table", rows, [*HEADER[:4], "kind"])
    folder = train_on(f"table:{table}", tmp_path / "run", "sncl")
    account = sncl("export", folder, f"--{form}", "--json").json()
    file = folder / ("model.onnx" if form == "onnx" else "model.pt2")
    model, metadata, given = opened(file)
    x = np.array([row[:4] for row in rows[:TEST_ROWS]])
    assert account["input"] == {"name": "rows", "type": "float64", "shape": ["rows", 4]}
    assert given in ("rows tensor(double)", "")
    assert account["class_names"] == json.loads(metadata["class_names"]) == ["setosa", "versicolor", "virginica"]
    assert metadata["model_format"] == "1" and metadata["sncl_version"] == package.__version__
    assert (metadata["stream"], metadata["method"]) == ("table:table", "sncl")
    predictions = named_predictions(model, metadata, x)
    assert by_task(folder, predictions) == run_predictions(folder)
    assert account["test_rows"] == TEST_ROWS and account["exported"]["accuracy"] == account["trained"]["accuracy"]
    x[:, 3] -= 1e9
    assert named_predictions(model, metadata, x) != predictions  # the column counts


def test_a_table_with_categories_and_gaps(sncl: Sncl, tmp_path: Path) -> None:
    rows = gappy_flowers()
    folder = train_on(f"table:{save_split(tmp_path / 'table', rows)}", tmp_path / "run")
    assert sncl("export", folder).code == 0
    model, metadata, _ = opened(folder / "model.onnx")
    x = encoded_by_hand(metadata, rows[:TEST_ROWS])
    assert by_task(folder, named_predictions(model, metadata, x)) == run_predictions(folder)
    said = read_csv(sncl("predict", folder, tmp_path / "table" / "test.csv").out)
    assert [row["prediction"] for row in said] == named_predictions(model, metadata, x)


def test_arrays_of_floats_and_of_bytes(sncl: Sncl, tmp_path: Path) -> None:
    arrays = float_images()
    test = {f"test_{name}": values[:20] for name, values in arrays.items()}
    np.savez(tmp_path / "floats.npz", **{name: values[20:] for name, values in arrays.items()}, **test)
    floats = train_on(tmp_path / "floats.npz", tmp_path / "floats")
    assert sncl("export", floats).code == 0
    model, metadata, given = opened(floats / "model.onnx")
    assert given == "images tensor(float)"
    found = named_predictions(model, metadata, arrays["x"][:20, None])
    assert by_task(floats, found) == run_predictions(floats)
    digits = train_on(save_digits(tmp_path / "bytes.npz"), tmp_path / "bytes")
    assert sncl("export", digits, "--torch").code == 0
    model, metadata, _ = opened(digits / "model.pt2")
    with np.load(tmp_path / "bytes.npz") as arrays_of_bytes:
        found = named_predictions(model, metadata, arrays_of_bytes["x_test"])
    assert by_task(digits, found) == run_predictions(digits)


@pytest.mark.parametrize(("mode", "form"), [("L", "torch"), pytest.param("RGB", "onnx", marks=pytest.mark.slow)])
def test_a_folder_of_images(sncl: Sncl, tmp_path: Path, mode: str, form: str) -> None:
    """Grey ones by an MLP, coloured ones by a ResNet."""
    pictures = save_small_images(tmp_path / "pictures" / "train", mode=mode)
    save_small_images(tmp_path / "pictures" / "test", mode=mode)
    folder = train_on(f"folder:{tmp_path / 'pictures'}", tmp_path / "run", memory=4, width="4")
    assert sncl("export", folder, f"--{form}").code == 0
    model, metadata, _ = opened(folder / ("model.onnx" if form == "onnx" else "model.pt2"))
    files = sorted(pictures.rglob("*.png"), key=lambda path: (path.name, path))
    pixels = np.stack([np.asarray(Image.open(path)) for path in files])
    x = pixels[:, None] if mode == "L" else pixels.transpose(0, 3, 1, 2)
    assert json.loads(metadata["class_names"]) == ["ape", "bee"]
    found = named_predictions(model, metadata, np.ascontiguousarray(x))
    assert by_task(folder, found) == run_predictions(folder)
