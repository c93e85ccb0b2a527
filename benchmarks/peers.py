"""Other libraries for streams beside this one: the same streams, networks and memories, each peer in its own process.

    python benchmarks/peers.py --help

What is installed is measured, and what is missing is named. An environment that has all of them, with the CPU build of
PyTorch first, so that nothing pulls CUDA:

    python3 -m venv peers
    peers/bin/pip install torch==2.13.0
    peers/bin/pip install river scikit-learn safetensors typer rich platformdirs filelock pillow
    peers/bin/pip install --no-deps avalanche-lib torchvision pytorchcv
    peers/bin/pip install gputil dill gdown matplotlib psutil torchmetrics tensorboard tqdm setuptools
    SNCL_DATA=folder OMP_NUM_THREADS=1 PYTHONPATH=. peers/bin/python benchmarks/peers.py --write

Rows/s are of processor time, so that what else the machine does counts little: of predicting and learning in turns
where the stream comes once, else of learning. ``--write`` puts the tables into docs/performance.md. A part of MNIST is
learned too where $SNCL_DATA has it.
"""

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np
from pages import ROOT, rewrite, table
from peer_models import ALL, PEERS, Peer
from peer_streams import Stream, digits, mnist
from peer_streams import table as table_stream

INSTALLED = {
    "river": "river",
    "sklearn": "scikit-learn",
    "avalanche": "avalanche-lib",
    "sncl": "sncl",
    "torch": "torch",
}
TREE, OURS = "River, Hoeffding tree", "sncl, "
MORE = 4  # times as many rows in batches as singly


def make(name: str, seed: int, rows: int) -> Stream | None:
    if name in ("rows", "batches"):
        return table_stream(seed, *((rows, 1) if name == "rows" else (MORE * rows, 10)))
    return digits(seed) if name == "digits" else mnist(seed)


# --- in the process of a peer --------------------------------------------------------------------------------------


def work(peer: Peer, folder: Path, seeds: int) -> dict[str, dict]:
    """One peer on all its streams, one after the other: what was measured of each, by name."""
    peer.kind(peer.name, 2, 0)  # everything is imported now
    found = {}
    for name in peer.streams:
        paths = [folder / f"{name}-{seed}.npz" for seed in range(seeds)]
        if paths[0].exists():
            found[name] = learn(peer, paths)
    return found


def learn(peer: Peer, paths: list[Path]) -> dict:
    """One peer on one stream with every seed."""
    runs = []
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
    before = peak_mb()
    for seed, path in enumerate(paths):
        stream = Stream.read(path)
        model = peer.kind(peer.name, stream.test[0].shape[1], seed)
        way = task_by_task if hasattr(model, "learn_tasks") else in_order
        prequential, taken, rows = way(model, stream)
        end = percent(model.predict(model.native(*stream.test)[0]), stream.test[1])
        runs.append({"prequential": prequential, "end": end, "rows_per_s": rows / taken})
    return {"runs": runs, "peak_mb": peak_mb(), "before_mb": before}


def in_order(model, stream: Stream) -> tuple[float | None, float, int]:
    """Batch by batch, predicted before it is learned where the stream is seen once; accuracy, seconds and rows."""
    batches = []
    for x, y in stream.tasks:
        for epoch in range(stream.epochs):
            order = np.arange(len(y)) if epoch == 0 else np.random.default_rng(epoch).permutation(len(y))
            parts = [order[first : first + stream.batch] for first in range(0, len(y), stream.batch)]
            batches += [(y[part], *model.native(x[part], y[part])) for part in parts]
    right = 0
    begun = time.process_time()
    for labels, x, y in batches:
        if stream.online:
            right += int(np.sum(np.asarray(model.predict(x)) == labels))
        model.learn(x, y)
    taken = time.process_time() - begun
    rows = sum(len(labels) for labels, *_ in batches)
    return 100 * right / rows if stream.online else None, taken, rows


def task_by_task(model, stream: Stream) -> tuple[None, float, int]:
    begun = time.process_time()
    model.learn_tasks(stream.tasks, stream.batch, stream.epochs)
    return None, time.process_time() - begun, stream.epochs * sum(len(y) for _, y in stream.tasks)


def percent(answers, labels: np.ndarray) -> float:
    return 100 * float(np.mean(np.asarray(answers) == labels))


def peak_mb() -> float:
    """The most memory that was resident in this process; Linux alone tells it of a part of a process's life."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


# --- all of them ---------------------------------------------------------------------------------------------------


def measure(streams: list[str], seeds: int, rows: int) -> list[dict]:
    """A fact sheet for every stream and peer, in this order; what fails says why."""
    found: dict[str, list[dict]] = {}
    texts = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in streams:
            for seed in range(seeds):
                stream = make(name, seed, rows)
                if stream is not None:
                    stream.save(Path(folder, f"{name}-{seed}.npz"))
                    texts[name] = {"stream": name, "text": stream.text, "online": stream.online}
        for number, peer in enumerate(PEERS):
            if find_spec(peer.package):
                measured = in_a_process(number, folder, seeds)
                for name in [each for each in texts if each in peer.streams]:
                    found.setdefault(name, []).append(texts[name] | {"peer": peer.title} | measured[name])
                    print(f"{peer.title}, {name}: {said(found[name][-1])}", file=sys.stderr, flush=True)
    return [facts for name in texts for facts in found[name]]


def in_a_process(number: int, folder: str, seeds: int) -> dict[str, dict]:
    """What a peer does in a process of its own; what it fails with, for all streams."""
    command = [sys.executable, __file__, "--peer", str(number), "--seeds", str(seeds), "--folder", folder]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        return {name: {"failed": last} for name in ALL}
    return json.loads(done.stdout.strip().splitlines()[-1])


def said(facts: dict) -> str:
    return facts.get("failed") or f"{spread(facts, 'end')} %, {rate(facts):,.0f} rows/s, {facts['peak_mb']:,.0f} MB"


def spread(facts: dict, name: str) -> str:
    values = [run[name] for run in facts["runs"]]
    if None in values:
        return "–"
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def rate(facts: dict) -> float:
    return median(run["rows_per_s"] for run in facts["runs"])


def tables(found: list[dict]) -> str:
    """One table for each stream."""
    parts = []
    for name in dict.fromkeys(facts["stream"] for facts in found):
        here = [facts for facts in found if facts["stream"] == name]
        online = here[0]["online"]
        headings = [
            "peer",
            "all classes at the end, %",
            *(["while learning, %"] if online else []),
            "rows/s",
            "peak MB",
            "beyond imports, MB",
        ]
        rows = []
        for facts in here:
            if "failed" in facts:
                rows.append([facts["peer"], f"failed: {facts['failed']}", *[""] * (len(headings) - 2)])
                continue
            accuracies = [spread(facts, "end"), *([spread(facts, "prequential")] if online else [])]
            beyond = facts["peak_mb"] - facts["before_mb"]
            rows.append(
                [facts["peer"], *accuracies, f"{rate(facts):,.0f}", f"{facts['peak_mb']:,.0f}", f"{beyond:,.0f}"]
            )
        parts.append(f"**{name}**: {here[0]['text']}\n\n{table(headings, rows, 1)}")
    return "\n\n".join([*parts, *against_trees(found)])


def against_trees(found: list[dict]) -> list[str]:
    """Single rows: a tree beside ours, in one sentence."""
    rates = {facts["peer"]: rate(facts) for facts in found if facts["stream"] == "rows" and "runs" in facts}
    ours = {name: value for name, value in rates.items() if name.startswith(OURS)}
    if TREE not in rates or not ours:
        return []
    fast, slow = max(ours, key=ours.get), min(ours, key=ours.get)
    return [
        f"One row at a time, a Hoeffding tree is {rates[TREE] / ours[fast]:.1f} times as fast as our fastest "
        f"({fast.removeprefix(OURS)}) and {rates[TREE] / ours[slow]:.1f} times as fast as our slowest "
        f"({slow.removeprefix(OURS)})."
    ]


def conditions(seeds: int) -> str:
    """With what it was measured."""
    versions = [f"{name} {installed(name)}" for name in INSTALLED.values()]
    where = f"Python {platform.python_version()}, one thread, {os.cpu_count()} cores of a shared machine"
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return f"Seeds 0 to {seeds - 1}, commit {commit.stdout.strip() or 'unknown'}; {', '.join(versions)}; {where}."


def installed(name: str) -> str:
    if name == "sncl":
        return "as it is here"
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--streams", default=",".join(ALL), help=f"some of {', '.join(ALL)}")
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--rows", type=int, default=1500, help="of the table, and four times as many in batches")
    asked.add_argument("--json", action="store_true", help="print JSON instead of tables")
    asked.add_argument("--write", action="store_true", help="also put the tables into docs/performance.md")
    asked.add_argument("--peer", type=int, help=argparse.SUPPRESS)
    asked.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.peer is not None:
        print(json.dumps(work(PEERS[given.peer], given.folder, given.seeds)))
        return
    streams = given.streams.split(",")
    if unknown := [name for name in streams if name not in ALL]:
        asked.error(f"the streams are {', '.join(ALL)}, not {unknown[0]!r}")
    found = measure(streams, given.seeds, given.rows)
    missing = [INSTALLED[name] for name in INSTALLED if not find_spec(name)]
    text = f"{conditions(given.seeds)}{' Missing: ' + ', '.join(missing) + '.' if missing else ''}\n\n{tables(found)}"
    if given.write:
        rewrite("docs/performance.md", "peers", text)
    print(
        json.dumps({"conditions": conditions(given.seeds), "missing": missing, "found": found}, indent=2)
        if given.json
        else text
    )


if __name__ == "__main__":
    main()
