"""The files a study leaves: chosen settings that can be read back, and every trial."""

import json
import tomllib
from pathlib import Path

import pytest
from command_line import Sncl
from studies import SHORT, short, states

from sncl.runs.plan import plan
from sncl.tuning.files import settings_file
from sncl.tuning.trial import Trial


def test_the_defaults_come_first_and_the_chosen_settings_can_be_read_back(sncl: Sncl, tmp_path: Path) -> None:
    command = [*SHORT, "--seeds", "2", "--trials", "4", "--set", "replay=20"]
    found = sncl(*command, "--json").json()
    first, *others = found["trials"]
    assert first["default"] and not any(trial["default"] for trial in others)
    shipped = plan("seq-digits", "derpp", memory=30).settings
    assert first["params"] == {key: shipped[key] for key in ("lr", "logits", "labels")}
    assert states(found["trials"]) == ["complete"] * 4
    for trial in found["trials"]:
        assert trial["score"] == pytest.approx(sum(trial["scores"]) / 2) and len(trial["scores"]) == 2
        for value in trial["params"].values():
            assert value == float(f"{value:.2g}")
    chosen = found["chosen"]
    assert chosen["score"] == max(trial["score"] for trial in found["trials"]) >= first["score"]
    assert [json.loads(line) for line in (tmp_path / "study.jsonl").read_text().splitlines()] == found["trials"]

    text = (tmp_path / "study.toml").read_text()
    assert tomllib.loads(text) == {"seq-digits": {"derpp": {"30": chosen["settings"]}}}
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert "Trials: 4 complete, 0 pruned, 0 failed. Seeds: 0 to 1." in comments[1]
    assert "shipped defaults: " in comments[2] and " ± " in comments[2]
    assert "sncl tune --stream seq-digits --method derpp --memory 30 --trials 4 --seeds 2" in comments[3]
    assert {path.name for path in tmp_path.iterdir()} == {
        *("study.journal", "study.journal.lock", "study.toml", "study.jsonl")
    }

    train = ["train", "--stream", "seq-digits", "--method", "derpp", "--memory", "30", "--tasks", "1", "--epochs", "1"]
    train += ["--settings", "study.toml", "--validation", "0.1", "--json"]
    result = sncl(*train, "--out", "run").json()
    assert result["manifest"]["settings"] == shipped | chosen["params"] | {"replay": 20}
    assert result["accuracy"]["class_il"] == chosen["scores"][0]  # what is written is what was run
    over = sncl(*train, "--out", "over", "--set", "lr=0.07").json()
    assert over["manifest"]["settings"] == result["manifest"]["settings"] | {"lr": 0.07}

    table = sncl(*command)  # finished: it only shows
    assert (table.code, table.err.splitlines()[0]) == (0, "trials: 4 complete, 0 pruned, 0 failed")
    assert "(defaults)" in table.out and len(table.out.splitlines()) == 5
    more = sncl(*command, "--trials", "5", "--json").json()
    assert more["trials"][:4] == found["trials"] and len(more["trials"]) == 5


def test_settings_that_do_not_fit_are_one_line(sncl: Sncl, tmp_path: Path) -> None:
    train = ["train", "--stream", "seq-digits", "--method", "er", "--settings", "file.toml"]
    file = tmp_path / "file.toml"
    for text, words in [
        ("", "no entry [seq-digits] er.200"),
        ("seq-digits = 3", "no entry"),
        ("[seq-digits]\ner.30 = { lr = 1.0 }", "no entry [seq-digits] er.200"),
        ("[seq-digits]\ner.any = { nothing = 1.0 }", "no setting 'nothing'"),
        ("[seq-digits]\ner.200 = { lr = 'fast' }", "takes a value like"),
        ("[seq-digits]\ner.200 = { lr = true }", "lr is a number or a text"),
        ("[seq-digits]\ner.200 = { lr = [1.0] }", "lr is a number or a text"),
        ("[seq-digits", "cannot read the settings"),
        ("\x00", "cannot read the settings"),
    ]:
        file.write_text(text)
        done = sncl(*train)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert words in done.err and "file.toml" in done.err
    file.unlink()
    assert "No such file" in sncl(*train).err


def test_what_is_written_is_toml_whatever_is_in_it() -> None:
    search = short(method="sncl", fixed={"features": 'a"\n\x7f\\µ,#'})
    trial = Trial(0, "complete", search.default(), [50.0], 1.0, None, True)
    row = tomllib.loads(settings_file(search, [trial], 3, trial))["seq-digits"]["sncl"]["30"]
    assert row == search.row(search.default())
    without_memory = short(method="sgd")
    text = settings_file(without_memory, [trial], 3, trial._replace(params=without_memory.default()))
    assert tomllib.loads(text)["seq-digits"] == {"sgd": {"any": {"lr": 0.1}}}
