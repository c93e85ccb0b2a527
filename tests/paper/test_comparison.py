"""Our numbers beside the paper's: when they are called equal."""

import pytest

from sncl.paper.comparison import mark
from sncl.paper.tables import Published


@pytest.mark.parametrize(
    ("ours", "paper_value", "expected"),
    [
        # ours: mean 86, variance 8/3, so 2/3 over n = 4; the paper's 3²/10 = 0.9; twice sqrt(2/3 + 0.9) is 2.503
        ([84.0, 86.0, 88.0, 86.0], Published(88.5, 3.0), "equal"),
        ([84.0, 86.0, 88.0, 86.0], Published(88.51, 3.0), "worse"),
        ([84.0, 86.0, 88.0, 86.0], Published(83.49, 3.0), "better"),
        # no deviation printed: twice sqrt(2/2) = 2 around 85
        ([84.0, 86.0], Published(87.0), "equal"),
        ([84.0, 86.0], Published(87.01), "worse"),
        ([84.0, 86.0], Published(82.99), "better"),
        ([84.0], Published(10.0, 1.0), ""),
        ([], Published(10.0, 1.0), ""),
    ],
)
def test_marks(ours: list[float], paper_value: Published, expected: str) -> None:
    assert mark(ours, paper_value) == expected
