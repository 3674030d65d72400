"""Table "Runtime comparison" of the paper: from a fitted model to explanations of ten predictions, set-up included.

    python experiments/runtime.py [--data FOLDER]     # about a minute; writes experiments/results/runtime.csv

FOLDER holds the paper's data sets as CSV files, the target in the last column; without it they come from OpenML. LightGBM, 100
trees of 31 leaves, rate 0.1, min_child_samples 2; 80/20 split with seed 42. Seconds are the shortest of three runs on this
machine; the paper's are for a Core i9-14900K with 24 cores, its rivals from the package tree-influence, ours axil's own. All of
ours prove the model first: the rivals' times contain the explainer's set-up.
"""

from __future__ import annotations

import time

from paper_setting import run

import axil
from axil import baselines

# Seconds of AXIL, BoostIn, TREX and LeafInfluence in the paper.
PAPER_TEXT = """
abalone 0.08 0.59 1.33 -
airfoil 0.05 0.29 0.25 59.9
autos 0.03 0.18 0.14 8.05
bodyfat 0.02 0.21 0.16 4.68
boston 0.02 0.18 0.17 11.5
concrete 0.04 0.22 0.20 32.9
cpu_small 0.10 1.03 7.32 -
cars 0.03 0.29 0.20 22.2
diabetes 0.04 0.19 0.16 9.65
energy_efficiency 0.03 0.21 0.17 21.1
forest_fires 0.03 0.22 0.17 11.7
grid_stability 0.15 1.33 1.48 -
kin8nm 0.13 0.87 1.00 -
qsar_fish 0.03 0.23 0.23 26.6
red_wine 0.05 0.29 0.29 64.9
space_ga 0.07 0.49 0.48 -
titanic 0.03 0.24 0.22 45.5
treasury 0.03 0.27 0.23 34.7
white_wine 0.09 0.66 0.66 -
yacht 0.03 0.13 0.15 5.92
"""
PAPER = {name: times for name, *times in map(str.split, PAPER_TEXT.strip().splitlines())}


def seconds(work):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return f"{min(times):.3f}"


def measure(name, fitted):
    new, y_new = fitted.new[:10], fitted.y_new[:10]

    def explainer():
        return axil.Explainer(fitted.model, fitted.train, fitted.y_train)

    line = {"data": name, "N": fitted.shape[0], "AXIL": seconds(lambda: explainer()(new))}
    for rival in (baselines.BoostIn, baselines.TREX, baselines.LeafInfluence):
        line[rival.__name__] = seconds(lambda rival=rival: rival(explainer()).scores(new, y_new))
    return line | dict(
        zip(("AXIL, paper", "BoostIn, paper", "TREX, paper", "LeafInfluence, paper"), PAPER[name])
    )


if __name__ == "__main__":
    run("runtime", __doc__.splitlines()[0], list(PAPER), measure)
