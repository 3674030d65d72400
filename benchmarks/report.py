"""Pages per second of a report, beside the comparables alone, and the bytes of a page.

Friedman #1, LightGBM, 100 trees of 31 leaves. `python benchmarks/report.py` asks for five comparables of 5,000 queries by 20,000
training rows: as a table (`similar` with adjust and weights), as pages with a map, and again where the pages are there already.
"""

import argparse
import tempfile
import time
from pathlib import Path

import pandas as pd
from common import fit, friedman, resident

import axil


def timed(ask):
    """Seconds, and what was returned."""
    start = time.perf_counter()
    found = ask()
    return time.perf_counter() - start, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    X, y = friedman(arguments.rows)
    frame, names = pd.DataFrame(X), [f"x{i}" for i in range(X.shape[1])]
    frame.columns = names
    explainer = axil.Explainer(fit(frame, y, trees=100), frame, y, n_threads=arguments.threads)
    queries = pd.DataFrame(friedman(arguments.queries, seed=1)[0], columns=names)
    chosen = {"k": 5, "columns": names[:8], "sign": "for"}
    explainer.similar(
        queries.head(10), adjust=True, weights=True, **chosen
    )  # what is prepared once
    table, _ = timed(lambda: explainer.similar(queries, adjust=True, weights=True, **chosen))
    with tempfile.TemporaryDirectory() as folder:
        pages, written = timed(
            lambda: explainer.report(queries, folder, map=("x0", "x1"), **chosen)
        )
        again, kept = timed(lambda: explainer.report(queries, folder, map=("x0", "x1"), **chosen))
        sizes = [file.stat().st_size for file in Path(folder, "pages").rglob("*.html")]
    n = arguments.queries
    assert (written.written, kept.written, len(sizes)) == (n, 0, n)
    print(f"similar   {table:8.2f} s  {n / table:8.0f} per second")
    print(
        f"report    {pages:8.2f} s  {n / pages:8.0f} per second  {pages / table:.2f} times similar"
    )
    print(f"again     {again:8.2f} s  {n / again:8.0f} per second")
    print(f"{sum(sizes) / n / 1024:.1f} KiB per page; peak {resident('VmHWM') >> 20} MiB")


if __name__ == "__main__":
    main()
