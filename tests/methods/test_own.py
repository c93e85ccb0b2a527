"""Methods of somebody else: found as plug-ins, by reference and as objects, and named by what decides them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Sncl
from own_methods import MODULE, OwnMethods, install
from sklearn.datasets import load_iris
from torch import nn

import sncl as package
from sncl.errors import SnclError
from sncl.methods.constructor import code_digest
from sncl.methods.method import Method, Outcome
from sncl.methods.own import add_method, is_portable, name_method, plugins
from sncl.methods.sncl import SNCL
from sncl.methods.table import Entry, entry, make, method_title
from sncl.networks.gating.policies import Grow
from sncl.networks.taps import Tapped
from sncl.runs.loading import load_run
from sncl.runs.plan import plan
from sncl.tensors.fields import Fields

SHORT = ["--stream", "seq-digits", "--epochs", "1", "--tasks", "2", "--memory", "40"]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnMethods]:
    found = OwnMethods(tmp_path, monkeypatch)
    yield found
    found.forget()


# --- plug-ins --------------------------------------------------------------------------------------------------------


def test_a_plug_in_is_a_method_everywhere(own: OwnMethods, sncl: Sncl) -> None:
    """One that is installed is listed, trained, resumed by Python, and used by the estimator and the learner."""
    own.module("somebodys")
    install(own.folder, "some-body", {"weighted": "somebodys:WeightedReplay"})
    own.forget()
    listed = sncl("list")
    assert re.search(r"^weighted +WeightedReplay +yes +– +– +loss = CE", listed.out, re.MULTILINE) and not listed.err
    assert sncl("list", "--json").json()["methods"][-1] == "weighted"
    done = sncl("train", *SHORT, "--method", "weighted", "--set", "weight=2", "--json").json()
    assert done["method"] == "weighted" and done["manifest"]["settings"]["weight"] == 2.0
    results = package.run("seq-digits", "weighted", epochs=1, tasks=2, memory=40, weight=2.0, progress=False)
    assert [result.accuracy for result in results] == [done["accuracy"]] and len(list(Path("runs").iterdir())) == 1
    assert "WeightedReplay" in repr(results)
    assert load_run(results.folders[0], device="cpu").learner.method.weight == 2.0
    X, y = load_iris(return_X_y=True)
    assert package.ContinualClassifier("weighted", random_state=0).fit(X, y).score(X, y) > 0.9
    assert package.Learner(nn.Linear(4, 3), "weighted").method.weight == 1.0


def test_a_broken_plug_in_is_one_warning_and_an_error_when_used(own: OwnMethods, sncl: Sncl) -> None:
    own.module("broken_module", "raise RuntimeError('no luck')")
    own.module("somebodys", MODULE + "\nnumber = 3\n")
    install(own.folder, "bad-luck", {"unlucky": "broken_module:X", "number": "somebodys:number"})
    install(own.folder, "copy-cat", {"er": "somebodys:WeightedReplay"})
    own.forget()
    done = sncl("list")
    assert done.code == 0 and "sncl " in done.out and "unlucky" not in done.out
    warnings = done.err.splitlines()
    assert len(warnings) == 3 and all(line.startswith("warning: the ") for line in warnings)
    assert any("plug-in copy-cat offers the method 'er', which is there already" in line for line in warnings)
    assert any("'unlucky' of the plug-in bad-luck cannot be loaded: RuntimeError: no luck" in line for line in warnings)
    assert any("is a class derived from Method, or an Entry, not int" in line for line in warnings)
    assert entry("er").title == "ER"
    used = sncl("train", *SHORT, "--method", "unlucky")
    assert used.code == 2 and used.err.startswith("error: the method 'unlucky' of the plug-in bad-luck cannot be")
    unknown = sncl("train", *SHORT, "--method", "lucky")
    assert unknown.code == 2 and "did you mean unlucky?" in unknown.err


def test_an_entry_may_be_a_plug_in(own: OwnMethods) -> None:
    line = 'OFFERED = Entry("Heavy", WeightedReplay, "nobody, 2026", {"weight": 5.0}, memory=True)'
    own.module("somebodys", f"from sncl.methods.table import Entry\n{MODULE}\n{line}\n")
    install(own.folder, "some-body", {"heavy": "somebodys:OFFERED"})
    own.forget()
    assert plugins(pytest.fail)["heavy"].reference == "nobody, 2026" and make("heavy").weight == 5.0
    told = {"heavy": "Heavy", "nobody_knows": "nobody_knows", "a.b:C.D": "D", "<b>.x:y": "<b>.x:y"}
    assert {name: method_title(name) for name in told} == told


# --- references ------------------------------------------------------------------------------------------------------


def test_the_command_line_imports_a_reference_from_the_current_folder(own: OwnMethods, sncl: Sncl) -> None:
    Path("mine.py").write_text(MODULE)
    own.modules.append("mine")
    done = sncl("train", *SHORT, "--method", "mine:WeightedReplay", "--set", "warm=true", "--json").json()
    assert done["method"] == "mine:WeightedReplay" and done["manifest"]["settings"]["warm"] is True
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"seq-digits-mine-WeightedReplay-40-seed0-\w{8}", folder.name)
    again = sncl("train", *SHORT, "--method", "mine:WeightedReplay", "--set", "warm=1")
    assert f"already finished: {folder}" in again.err and " WeightedReplay " in again.out
    for name, words in {
        "mine:Weightless": "cannot be imported: AttributeError",
        "no_such_module:X": "cannot be imported: ModuleNotFoundError",
        "mine:inputs": "is no method: it is a class derived from Method",
    }.items():
        refused = sncl("train", *SHORT, "--method", name)
        assert refused.code == 2 and refused.err.startswith("error: ") and words in refused.err, refused.err
        assert len(refused.err.splitlines()) == 1


def test_a_file_that_names_code_does_not_have_it_imported(own: OwnMethods, sncl: Sncl) -> None:
    own.module("somebodys", MODULE + "\nfrom pathlib import Path\nPath('imported').touch()\n")
    sncl("train", *SHORT, "--method", "somebodys:WeightedReplay", "--out", "run")
    Path("imported").unlink()
    own.forget()
    name_method.__globals__["_given"].clear()
    with pytest.raises(SnclError, match="somebodys:WeightedReplay is not known here"):
        load_run(Path("run"), device="cpu")
    assert not Path("imported").exists()
    assert "WeightedReplay" in repr(package.results("run"))  # to look at numbers needs no code
    assert add_method("somebodys:WeightedReplay") == "somebodys:WeightedReplay"
    assert load_run(Path("run"), device="cpu").learner.method.draws == 1


# --- objects ---------------------------------------------------------------------------------------------------------


class Doubled(Method):
    """Replay of labels, ``factor`` times as heavy."""

    draws = 1

    def __init__(self, factor: float, note: str = "") -> None:
        super().__init__()
        self.factor = factor
        self.note = note
        self.register_buffer("seen", torch.zeros(()))

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        return Outcome({"labels": self.factor * nn.functional.cross_entropy(net(now["x"]).logits, now["y"])})


class Forgetful(Doubled):
    """Does not keep what it was made with."""

    def __init__(self, secret: int = 3) -> None:
        super().__init__(float(secret))


def test_an_object_is_named_by_its_class_and_constructor(own: OwnMethods) -> None:
    name, settings = name_method(Doubled(3))
    assert name == f"{__name__}:Doubled" and settings == {"factor": 3, "note": ""}
    assert entry(name).memory and entry(name).title == "Doubled" and is_portable(name)
    assert make(name, {"factor": 4.0}).factor == 4.0
    whole, real = (plan("seq-digits", name, device="cpu", settings={"factor": text}) for text in ("2", "3"))
    assert whole.name() != real.name() and whole.code == real.code and len(str(whole.code)) == 16


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Doubled, "Doubled needs a value for `factor`: give it a usual value, or give an object"),
        (Forgetful(), "what this Forgetful was made with cannot be told: it keeps no number or text self.secret"),
        (SNCL(0.5, 0.5, 0.5, gating=Grow(0.3)), "makes: its gating"),
    ],
    ids=["a class without a usual value", "an object that tells nothing", "an object of parts"],
)
def test_what_cannot_be_told_is_refused(own: OwnMethods, method: Method, words: str) -> None:
    with pytest.raises(SnclError, match=re.escape(words)):
        name_method(method)


def test_an_object_that_has_learned_or_was_changed_is_refused(own: OwnMethods) -> None:
    learned, changed = Doubled(2.0), Doubled(2.0)
    learned.seen += 1  # type: ignore[operator]
    changed.extra = [1, 2]  # type: ignore[assignment]
    for method, name in ((learned, "seen"), (changed, "extra")):
        with pytest.raises(SnclError, match=rf"not what Doubled\(factor=2.0, note=''\) makes: its {name} is another"):
            name_method(method)


def test_other_code_is_another_run(own: OwnMethods) -> None:
    digests = []
    for number, text in enumerate((MODULE, MODULE, MODULE.replace("self.weight * ", "2 * self.weight * "))):
        own.module(f"version{number}", text)
        digests.append(code_digest(import_module(f"version{number}").WeightedReplay))
    assert digests[0] == digests[1] != digests[2]


def test_a_method_inside_a_function_is_known_here_only(own: OwnMethods, capfd: pytest.CaptureFixture[str]) -> None:
    class Inside(Doubled):
        """Cannot be imported."""

        def __init__(self, factor: float = 1.0) -> None:
            super().__init__(factor)

    results = package.run("seq-digits", [Inside(2.0), Inside], seeds=[3], epochs=1, tasks=1, folder=own.folder)
    assert {result.manifest.settings["factor"] for result in results} == {1.0, 2.0} and len(results) == 2
    assert "Inside is defined in this session" in capfd.readouterr().err
    assert not is_portable(add_method(Inside)) and is_portable("er")


def test_an_entry_that_is_given_keeps_what_it_says(own: OwnMethods) -> None:
    given = Entry("Twice", Doubled, "an example", {"factor": 2.0, "note": "x"}, memory=False)
    assert make(add_method(given)).factor == 2.0
    experiment = plan("seq-digits", add_method(given), memory=50, device="cpu")
    assert experiment.memory == 0 and experiment.settings["note"] == "x"


def test_the_estimator_takes_an_object_and_goes_on_after_saving_and_pickling(own: OwnMethods, tmp_path: Path) -> None:
    own.module("somebodys")
    kind = import_module("somebodys").WeightedReplay
    X, y = load_iris(return_X_y=True)
    model = package.ContinualClassifier(kind(weight=2.0), random_state=0).partial_fit(X, y)
    model.save(tmp_path / "model.safetensors")
    copies = [package.ContinualClassifier.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))]
    for each in (model, *copies):
        each.partial_fit(X, y)
    for each in copies:
        assert each.learner_.method.weight == 2.0
        np.testing.assert_array_equal(each.predict_proba(X), model.predict_proba(X))
    assert copies[0].method == "somebodys:WeightedReplay" and copies[0].settings == {"weight": 2.0, "warm": False}
    assert package.ContinualClassifier(kind, random_state=0).fit(X, y).learner_.method.weight == 1.0
