"""A server as clients meet it: what it answers, what it refuses, who may ask, and how it ends."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Sncl
from servers import DIGITS, LABELS, Client, Server, repeat, running, same_state, small_model

from sncl import Learner, SNCLClassifier
from sncl.networks.mlp import MLP
from sncl.serving import make_app

TOKEN = "a-token-of-some-length"
ROWS = DIGITS[:3].tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("serving")
    small_model().save(found / "digits.safetensors")
    return found


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    limits = ("--max-body", "200000", "--max-rows", "50", "--pending", "20")
    with Server(folder / "digits.safetensors", "--every", "1", *limits) as started:
        yield started
        assert "stored: " in started.stop()  # by SIGTERM


@pytest.fixture
def client(server: Server) -> Client:
    return server.client()


TOLD_EARLY = """
import os, signal, sys, uvicorn
from sncl.cli import main

starts = uvicorn.Server.run

def told(server, sockets=None):  # behind the line that says where it is, before uvicorn hears signals
    os.kill(os.getpid(), signal.SIGTERM)
    starts(server, sockets)

uvicorn.Server.run = told
sys.argv = ["sncl", "serve", sys.argv[1], "--port", "0"]
main()
"""


def test_a_server_that_is_told_to_end_while_it_starts_ends(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "digits.safetensors"
    model.write_bytes((folder / "digits.safetensors").read_bytes())
    command = [sys.executable, "-c", TOLD_EARLY, model]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert "http://127.0.0.1:" in done.stdout + done.stderr and "stored: " in done.stdout + done.stderr


def test_it_says_where_it_is_and_what_may_be_lost(server: Server) -> None:
    assert "http://127.0.0.1:" in server.words[-1] and "5 classes" in server.words[-1]
    assert "kill -9 loses nothing that was acknowledged, a power failure nothing either" in server.words[-1]


def test_predictions_are_those_of_the_model(client: Client) -> None:
    model = small_model()
    answer = client.post("/predict", {"rows": ROWS, "probabilities": True}).json()
    assert answer["predictions"] == model.predict(DIGITS[:3]).tolist()
    assert answer["probabilities"] == model.predict_proba(DIGITS[:3]).tolist()
    assert answer["classes"] == [0, 1, 2, 3, 4] and len(set(answer["ids"])) == 3
    assert client.post("/predict", {"rows": ROWS, "keep": False}).json()["ids"] == []


def test_late_labels_count_the_prediction_that_was_made(client: Client) -> None:
    before = client.metrics()
    rows = DIGITS[LABELS == 9][:4].tolist()
    first = client.post("/predict", {"rows": rows, "ids": ["a", "b", "c", 7]}).json()
    assert first["ids"] == ["a", "b", "c", "7"] and 9 not in first["predictions"]
    for _ in range(8):  # the model learns what these rows are
        assert client.post("/learn", {"rows": rows, "labels": [9] * 4, "wait": True}).status == 200
    assert client.post("/predict", {"rows": rows, "keep": False}).json()["predictions"] == [9] * 4  # a new class
    late = client.post("/learn", {"ids": ["a", "b", "c", 7], "labels": [9, 9, 9, first["predictions"][3]]})
    assert late.json()["learned"] == 4
    after = client.metrics()
    assert after["sncl_labelled_predictions_total"] - before["sncl_labelled_predictions_total"] == 4
    assert after["sncl_right_predictions_total"] - before["sncl_right_predictions_total"] == 1


def test_unknown_ids_are_named_and_nothing_is_learned(client: Client) -> None:
    client.post("/predict", {"rows": ROWS, "ids": ["x", "y", "z"]})
    client.post("/learn", {"ids": ["z"], "labels": [1], "wait": True})
    before = client.metrics()["sncl_rows_learned_total"]
    refused = client.post("/learn", {"ids": ["x", "nobody", "z"], "labels": [0, 1, 1]})
    assert refused.status == 404 and refused.json()["ids"] == ["nobody", "z"] and "'nobody', 'z'" in refused.text
    assert client.post("/learn", {"ids": ["x", "y"], "labels": [0, 1], "wait": True}).status == 200  # both still wait
    assert client.metrics()["sncl_rows_learned_total"] == before + 2


def test_the_oldest_predictions_expire(client: Client) -> None:
    client.post("/predict", {"rows": ROWS[:1], "ids": ["old"]})
    client.post("/predict", {"rows": ROWS[:1] * 20})
    refused = client.post("/learn", {"ids": ["old"], "labels": [1]})
    assert refused.status == 404 and "expired (the newest 20 are kept)" in refused.text
    assert client.metrics()["sncl_pending_predictions"] == 20


REFUSED: dict[str, tuple[int, str, Any]] = {
    "no JSON": (400, "no JSON", b"{rows}"),
    "bytes that are no text": (400, "no JSON", b'{"rows": "\xff"}'),
    "nested too deeply": (400, "deeply", b'{"rows": ' + b"[" * 50_000),
    "a number that is none": (400, "NaN is not allowed", b'{"rows": [[NaN]]}'),
    "a number that is too large": (400, "1e999", b'{"rows": [[1e999]]}'),
    "no object": (422, "an object", [1]),
    "an unknown field": (422, "'row'", {"row": [[1]]}),
    "no rows": (422, "at least one", {"rows": []}),
    "rows of two lengths": (422, "one length", {"rows": [[1, 2], [3]]}),
    "rows of two kinds": (422, "each row", {"rows": [[1], {"a": 1}]}),
    "too few values": (422, "64", {"rows": [[1, 2]]}),
    "texts": (422, "do not fit", {"rows": [["a"] * 64]}),
    "objects in a row": (422, "do not fit", {"rows": [[{}] * 64]}),
    "a whole number without end": (422, "do not fit", {"rows": [[10**400] * 64]}),
    "a flag that is none": (422, "true or false", {"rows": ROWS, "keep": 1}),
    "too many rows": (413, "at most 50", {"rows": [[0] * 64] * 51}),
    "a long body": (413, "at most 200000 bytes", b" " * 200_001),
    "ids for other rows": (422, "one for each", {"rows": ROWS, "ids": ["p"]}),
    "an id twice": (422, "twice", {"rows": ROWS[:2], "ids": ["p", "p"]}),
    "an id without letters": (422, "1 to 200", {"rows": ROWS[:1], "ids": [""]}),
    "labels alone": (422, "either rows or ids", {"labels": [1]}),
    "rows and ids": (422, "either rows or ids", {"labels": [1], "rows": ROWS, "ids": ["p"]}),
    "too few labels": (422, "one for each row or id: 3", {"rows": ROWS, "labels": [1]}),
    "a label of another kind": (422, "'one'; labels of this model are whole", {"rows": ROWS, "labels": [1, "one", 2]}),
    "no label": (422, "a label is", {"rows": ROWS, "labels": [1, None, 2]}),
    "half a label": (422, "0.5", {"rows": ROWS, "labels": [1, 0.5, 2]}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(client: Client, what: str) -> None:
    status, words, body = REFUSED[what]
    before = client.metrics()
    refused = client.post("/learn" if "labels" in str(body) else "/predict", body)
    assert refused.status == status and words in refused.json()["error"], refused
    assert "\n" not in refused.json()["error"] and "Traceback" not in refused.text
    after = client.metrics()
    for name in ("sncl_rows_learned_total", "sncl_rows_predicted_total", "sncl_pending_predictions"):
        assert after[name] == before[name]


def test_other_refusals(client: Client) -> None:
    taken = client.post("/predict", {"rows": ROWS, "ids": ["k", "l", "m"]})
    assert taken.status == 200
    again = client.post("/predict", {"rows": ROWS[:2], "ids": ["n", "k"]})
    assert again.status == 409 and again.json()["ids"] == ["k"]
    assert client.get("/nothing").status == 404 and "/predict" in client.get("/nothing").json()["error"]
    wrong = client.get("/learn")
    assert wrong.status == 405 and wrong.headers["allow"] == "POST" and "error" in wrong.json()
    assert client.post("/predict", {"rows": ROWS}, {"Content-Type": "text/plain"}).status == 415
    foreign = client.get("/healthz", {"Host": "rebound.example:80"})
    assert foreign.status == 400 and "names of this machine" in foreign.json()["error"]
    assert client.get("/healthz", {"Host": "localhost:1"}).json() == {"status": "ok"}


def test_metrics_add_up(client: Client) -> None:
    before = client.metrics()
    client.post("/predict", {"rows": ROWS})
    client.post("/predict", {"rows": [[1]]})
    client.post("/learn", {"rows": ROWS, "labels": [0, 1, 2], "wait": True})
    after = client.metrics()
    moved = {name: after[name] - before.get(name, 0.0) for name in after}
    assert moved["sncl_rows_predicted_total"] == 3 and moved["sncl_rows_learned_total"] == 3
    assert moved['sncl_requests_total{route="/predict",status="200"}'] == 1
    assert moved['sncl_requests_total{route="/predict",status="422"}'] == 1
    assert moved['sncl_request_seconds_count{route="/predict"}'] == 2
    assert moved['sncl_request_seconds_bucket{route="/predict",le="+Inf"}'] == 2
    assert moved['sncl_request_seconds_sum{route="/predict"}'] > 0
    buckets = [
        value for name, value in after.items() if name.startswith('sncl_request_seconds_bucket{route="/predict"')
    ]
    assert buckets == sorted(buckets) and len(buckets) == 14
    assert moved["sncl_steps_total"] == 1 and after["sncl_memory_samples"] == after["sncl_memory_capacity"] == 50
    assert 0 < after["sncl_open_neurons_ratio"] <= 1 and 0 <= after["sncl_accuracy_ratio"] <= 1
    assert (
        after["sncl_accuracy_ratio"] == after["sncl_right_predictions_total"] / after["sncl_labelled_predictions_total"]
    )
    assert client.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")


def test_the_interface_is_described_and_the_page_loads_nothing(client: Client) -> None:
    told = client.get("/openapi.json").json()
    assert {"/predict", "/learn", "/metrics", "/healthz"} == told["paths"].keys()
    schema = told["paths"]["/learn"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["labels"]
    page = client.get("/docs")
    assert page.text == client.get("/").text and "http" not in page.text.replace("<!doctype html>", "")
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_two_servers_do_not_share_a_file(server: Server, folder: Path, sncl: Sncl) -> None:
    for path in ("digits.safetensors", "digits.serving.safetensors"):
        done = sncl("serve", folder / path, "--port", "0")
        assert done.code == 2 and "another server uses" in done.err and "--snapshot" in done.err


def test_a_taken_port_is_said(server: Server, folder: Path, sncl: Sncl) -> None:
    done = sncl("serve", folder / "digits.safetensors", "--snapshot", "own.safetensors", "--port", str(server.port))
    assert done.code == 2 and "choose another --port" in done.err


def test_other_machines_need_a_token(folder: Path, sncl: Sncl) -> None:
    done = sncl("serve", folder / "digits.safetensors", "--host", "0.0.0.0")
    assert done.code == 2 and done.err.count("\n") == 1 and "--token" in done.err and "SNCL_TOKEN" in done.err
    done = sncl("serve", folder / "digits.safetensors", "--token", "short")
    assert done.code == 2 and "at least 16" in done.err


def test_a_learner_without_its_network_is_explained(sncl: Sncl, tmp_path: Path) -> None:
    learner = Learner(MLP(64, 10, width=8), "er", device="cpu")
    learner.learn(DIGITS[:8], LABELS[:8])
    learner.save(tmp_path / "learner.safetensors")
    done = sncl("serve", "learner.safetensors")
    assert done.code == 2 and "without the code of its network" in done.err and "serve(learner)" in done.err


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    app = make_app(small_model(), snapshot=tmp_path / "model.safetensors", token=TOKEN)
    with (
        running(app) as port,
        Client(port) as stranger,
        Client(port, TOKEN) as friend,
        Client(port, TOKEN + "x") as liar,
    ):
        for asked in ("/predict", "/learn"):
            refused = stranger.post(asked, {"rows": ROWS, "labels": [1, 1, 1]})
            assert refused.status == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert stranger.get("/metrics").status == liar.get("/metrics").status == 401
        assert stranger.get("/healthz").status == 200 and 'type="password"' in stranger.get("/").text
        assert friend.get("/metrics", {"Host": "behind.a.proxy"}).status == 200
        lessons = [(DIGITS[start : start + 5], LABELS[start : start + 5]) for start in range(0, 30, 5)]
        for rows, labels in lessons:
            assert friend.post("/learn", {"rows": rows.tolist(), "labels": labels.tolist()}).status == 200
    assert same_state(SNCLClassifier.load(tmp_path / "model.safetensors"), repeat(small_model(), lessons))
    assert not list(tmp_path.glob("*.journal-*"))
