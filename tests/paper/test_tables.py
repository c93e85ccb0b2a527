"""The paper's tables: published values, and the experiments behind their cells."""

from typing import Any

import pytest
import torch

from sncl.methods.table import make
from sncl.networks.mlp import MLP
from sncl.paper import tables as paper
from sncl.paper.tables import cells, published, published_for
from sncl.runs.plan import plan

# --- what the paper printed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "stream", "row", "memory", "expected"),
    [
        ("table1", "seq-cifar10", "sncl", 5120, {"class_il": (90.41, 0.46), "task_il": (97.11, 0.19)}),
        ("table1", "seq-cifar10", "pnn", 0, {"task_il": (95.13, 0.72)}),
        ("table1", "seq-tinyimagenet", "der", 200, {"class_il": (11.57, 0.78), "task_il": (40.22, 0.67)}),
        ("table1", "seq-tinyimagenet", "gem", 200, {}),
        ("table1", "perm-mnist", "sncl", 200, {"domain_il": (86.23, 0.20)}),
        ("table1", "rot-mnist", "si", 0, {"domain_il": (71.91, 0.83)}),
        ("table1", "rot-mnist", "agem", 500, {"domain_il": (80.31, 6.29)}),
        ("table1", "perm-mnist", "derpp", 200, {}),
        ("table2", "mnist-360", "joint", 0, {"gcl": (82.98, 3.24)}),
        ("table2", "mnist-360", "agem-r", 1000, {"gcl": (29.21, 2.62)}),
        ("ablation", "perm-mnist", "+VBS+LRS", 200, {"domain_il": (84.94, None)}),
        ("ablation", "seq-tinyimagenet", "+LRS", 200, {"class_il": (11.66, None), "task_il": (40.64, None)}),
        ("ablation", "rot-mnist", "+labels", 200, {}),
        ("layers", "rot-mnist", "VBS+FER-on-layer2", 200, {"domain_il": (90.93, None)}),
    ],
)
def test_published_values(table: str, stream: str, row: str, memory: int, expected: dict[str, Any]) -> None:
    assert published(table, stream, row, memory) == expected


def test_the_tables_are_complete() -> None:
    sizes = {
        table: {stream: len(rows) for stream, rows in streams.items()} for table, streams in paper.values().items()
    }
    assert sizes == {
        "table1": {"seq-cifar10": 13, "seq-tinyimagenet": 11, "perm-mnist": 10, "rot-mnist": 10},
        "table2": {"mnist-360": 8},
        "ablation": dict.fromkeys(("seq-cifar10", "seq-tinyimagenet", "perm-mnist", "rot-mnist"), 8),
        "layers": {"perm-mnist": 7, "rot-mnist": 7},
    }
    assert all("derpp" not in rows for streams in paper.values().values() for rows in streams.values())
    for table, variants in paper.SNCL_VARIANTS.items():
        for stream in paper.values()[table]:  # no published row is left without its variant
            assert set(paper.values()[table][stream]) <= set(variants)


def test_ablation_and_layers_repeat_the_numbers_of_table_1() -> None:
    for stream in ("perm-mnist", "rot-mnist"):
        for method, rows in (
            ("der", [("ablation", "baseline"), ("layers", "baseline")]),
            ("sncl", [("ablation", "SNCL"), ("layers", "VBS+FER-on-layer1&2")]),
        ):
            mean = published("table1", stream, method, 200)["domain_il"].mean
            assert [published(table, stream, row, 200)["domain_il"].mean for table, row in rows] == [mean, mean]


@pytest.mark.parametrize("memory", [200, 500, 5120])
@pytest.mark.parametrize("stream", ["seq-cifar10", "perm-mnist"])
def test_the_shipped_settings_are_the_whole_sncl_even_where_a_part_is_off(stream: str, memory: int) -> None:
    settings = plan(stream, "sncl", memory=memory, device="cpu").settings
    assert published_for(stream, "sncl", memory, settings) == published("table1", stream, "sncl", memory) != {}


def test_other_parts_are_a_row_of_the_ablation() -> None:
    for stream in ("seq-cifar10", "rot-mnist"):
        for title in ("+LRS", "+FER", "baseline"):
            settings = plan(stream, "sncl", device="cpu", settings=paper.SNCL_VARIANTS["ablation"][title]).settings
            assert published_for(stream, "sncl", 200, settings) == published("ablation", stream, title, 200) != {}
    er = plan("seq-cifar10", "er", device="cpu").settings
    assert published_for("seq-cifar10", "er", 200, er) == published("table1", "seq-cifar10", "er", 200)
    assert published_for("seq-digits", "er", 200, er) == {}


# --- cells -------------------------------------------------------------------------------------------------------


def test_the_usual_cells_need_no_gpu() -> None:
    found = [(cell.stream, cell.memory, cell.method) for cell in cells("table1")]
    assert found == [
        (stream, memory, method)
        for stream in ("perm-mnist", "rot-mnist")
        for memory in (200, 500, 5120)
        for method in ("er", "der", "derpp", "sncl")
    ]
    assert {(cell.stream, cell.memory) for cell in cells("table2")} == {
        ("mnist-360", memory) for memory in (200, 500, 1000)
    }
    for table in ("ablation", "layers"):
        assert {(cell.stream, cell.memory) for cell in cells(table)} == {("perm-mnist", 200), ("rot-mnist", 200)}


def test_a_method_without_memory_has_one_cell() -> None:
    found = cells("table1", ["seq-cifar10"], ["er", "sgd"], [500, 200])
    assert [(cell.title, cell.memory) for cell in found] == [("SGD", 0), ("ER", 200), ("ER", 500)]


def test_oewc_on_permuted_mnist_has_a_row_for_each_strength() -> None:
    found = cells("table1", ["perm-mnist", "rot-mnist"], ["oewc"])
    expected = [("perm-mnist", "oEWC"), ("perm-mnist", "oEWC, strength 7"), ("rot-mnist", "oEWC")]
    assert [(cell.stream, cell.title) for cell in found] == expected
    experiments = [plan(cell.stream, cell.method, device="cpu", settings=cell.settings) for cell in found]
    assert [each.settings["strength"] for each in experiments] == [0.7, 7.0, 0.7]
    assert found[0].paper == found[1].paper == {"domain_il": (75.79, 2.25)}


def settings_of(table: str, title: str, stream: str) -> dict[str, Any]:
    (cell,) = (cell for cell in cells(table, [stream]) if cell.title == title)
    return plan(stream, cell.method, memory=cell.memory, device="cpu", settings=cell.settings).settings


NEUTRAL = {"alpha": 0.0, "gamma": 0.0, "gates": "off", "admission": "reservoir"}
OF_GATES = {"sparsity", "start", "fill", "neurons", "layers"}  # which a run without gates has not


def changed_settings(stream: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The shipped settings of SNCL with these changes."""
    found = plan(stream, "sncl", memory=200, device="cpu").settings | changes
    return {key: value for key, value in found.items() if found["gates"] != "off" or key not in OF_GATES}


@pytest.mark.parametrize(
    ("title", "off"),
    [
        ("baseline", ["alpha", "gamma", "gates", "admission"]),
        ("+labels", ["gamma", "gates", "admission"]),
        ("+features", ["alpha", "gates", "admission"]),
        ("+VBS", ["alpha", "gamma", "admission"]),
        ("+FER", ["gates", "admission"]),
        ("+LRS", ["alpha", "gamma", "gates"]),
        ("+VBS+FER", ["admission"]),
        ("+VBS+LRS", ["alpha", "gamma"]),
        ("+FER+LRS", ["gates"]),
        ("SNCL", []),
    ],
)
def test_a_row_of_the_ablation_switches_off_what_it_does_not_name(title: str, off: list[str]) -> None:
    for stream in ("perm-mnist", "rot-mnist"):
        whole = plan(stream, "sncl", memory=200, device="cpu").settings
        assert all(whole[part] != neutral for part, neutral in NEUTRAL.items())
        expected = changed_settings(stream, {part: NEUTRAL[part] for part in off})
        assert settings_of("ablation", title, stream) == expected


@pytest.mark.parametrize(
    ("title", "changed"),
    [
        ("baseline", NEUTRAL),
        ("FER-on-layer1", {"gates": "off", "features": "layer1"}),
        ("VBS+FER-on-layer1", {"features": "layer1"}),
        ("FER-on-layer2", {"gates": "off", "features": "layer2"}),
        ("VBS+FER-on-layer2", {"features": "layer2"}),
        ("FER-on-layer1&2", {"gates": "off"}),
        ("VBS+FER-on-layer1&2", {}),
    ],
)
def test_a_row_of_the_layers_changes_features_and_gates_alone(title: str, changed: dict[str, Any]) -> None:
    for stream in ("perm-mnist", "rot-mnist"):
        assert settings_of("layers", title, stream) == changed_settings(stream, changed)


def test_the_layers_of_the_rows_are_the_two_that_are_found() -> None:
    x = torch.rand(4, 6)

    def features(names: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = make("sncl", {"features": names}).prepare(MLP(6, 3, 5), x, torch.Generator().manual_seed(0))
        return list(net.eval()(x).features.values())

    first, second = features("layer1"), features("layer2")
    assert (len(first), len(second)) == (1, 1)
    assert not torch.equal(first[0], second[0])
    assert all(torch.equal(*pair) for pair in zip(features("auto"), [*first, *second], strict=True))
