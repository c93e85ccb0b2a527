"""Two streams of uneven classes: the digits with every even one thinned to a tenth, and a table of three kinds.

    python examples/uneven_classes.py

writes ``uneven-digits.npz`` and ``uneven.csv`` (85, 10 and 5 % of 3,000 rows) into this folder. What methods make of
them, with and without ``--set class_weight=balanced``, is in ``results/imbalance.md``.
"""

import csv

import numpy as np
from sklearn.datasets import load_digits, make_classification

digits = load_digits()
random = np.random.default_rng(0)
kept = (digits.target % 2 == 1) | (random.random(len(digits.target)) < 0.1)
images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
np.savez("uneven-digits.npz", x=images[kept], y=digits.target[kept])

X, y = make_classification(3000, 10, n_informative=5, n_classes=3, weights=[0.85, 0.1], class_sep=0.8, random_state=0)
with open("uneven.csv", "w", newline="") as file:
    lines = csv.writer(file)
    lines.writerow([*(f"x{number}" for number in range(10)), "kind"])
    lines.writerows([*row, "abc"[label]] for row, label in zip(X, y, strict=True))
