"""What an executor costs: whole `sncl train --seeds N` commands on this machine, on one core and on two.

    python benchmarks/executors.py

Each command makes N short runs (DER++ on seq-digits); what a further run takes is the difference of two commands. Leave
the machine alone meanwhile. Numbers of ours are in docs/scaling.md.
"""

import os
import subprocess
import sys
import tempfile
import time

FEW, MANY = 2, 10
TRAIN = ["train", "--stream", "seq-digits", "--method", "derpp", "--memory", "40", "--tasks", "2", "--epochs", "10"]
TRAIN += ["--device", "cpu", "--threads", "1"]


def seconds(executor: str, cores: int, runs: int) -> float:
    """The time of a whole command on so many cores."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "sncl", *TRAIN, "--seeds", str(runs), "--on", executor, "--out", "runs"]
        allowed = sorted(os.sched_getaffinity(0))[:cores]
        begun = time.perf_counter()
        subprocess.run(
            ["taskset", "-c", ",".join(map(str, allowed)), *command], cwd=folder, check=True, capture_output=True
        )
        return time.perf_counter() - begun


if __name__ == "__main__":
    print(f"executor  cores  {FEW} runs, s  {MANY} runs, s  a further run, s  load")
    for cores in (1, 2):
        for executor in ("local", "ray"):
            few, many = (seconds(executor, cores, runs) for runs in (FEW, MANY))
            further = (many - few) / (MANY - FEW)
            load = os.getloadavg()[0]
            print(f"{executor:8}  {cores:5}  {few:9.1f}  {many:10.1f}  {further:16.2f}  {load:.1f}", flush=True)
