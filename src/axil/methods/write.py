"""write: weights of many predictions on disk, batch by batch, as Parquet or zarr.

A file takes its name only once it is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from axil.aliases import ArrayLike, PathLike, TableLike
from axil.arrays import AnyArray
from axil.errors import InputError, shown
from axil.inputs import as_file, as_path
from axil.inputs.codes import keys
from axil.machine.atomic import atomic
from axil.methods.method import Method
from axil.output.explained_arrays import queries_first
from axil.output.predictions import WeightedSums

CHUNK = (16, 1 << 16)  # queries and training rows of a chunk of a zarr array: 8 MiB


class Write(Method):
    """Provide `Explainer.write`."""

    def write(self, X: TableLike, path: PathLike, *, init_score: ArrayLike | None = None) -> None:
        """Write the weights of all rows of X to a path that ends in .parquet or .zarr, in batches.

        A Parquet file has a line per explained row (and output): its label, prediction, intercept,
        and weights as a list in the order of the training rows. A zarr group has the arrays weights
        (n, n_train), predictions, intercepts, query_index and index. Labels other than numbers,
        dates and text are written as text. Scores and intercepts are on the scale of the fit, on
        which they add up. For an additive explainer, contributions replace weights.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        path : str or path
            A file that ends in .parquet, or a directory that ends in .zarr.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        """
        explained = self._explained_rows("write", X, init_score)
        if not len(explained):
            raise InputError("X has no rows, so there is nothing to write.")
        n_train, n_outputs = explained.model.shape
        copies = 2 * 8 * n_train * n_outputs  # on the way
        batches = (batch.dense() for batch in explained.parts(copies))
        place = as_path(path)
        writers = {".parquet": _write_parquet, ".zarr": _write_zarr}
        if place.suffix not in writers:
            raise InputError(
                f"{place} ends in {place.suffix!r}; expected a path that ends in .parquet or .zarr."
            )
        place = as_file(place, is_folder=place.suffix == ".zarr")
        queries, rows = map(
            labels_as_written, (explained.queries.labels, explained.model.training.gathered()[1])
        )
        with atomic(place) as temporary:
            writers[place.suffix](batches, queries, rows, n_outputs, temporary)


def labels_as_written(labels: AnyArray) -> AnyArray:
    """Return labels as both formats can keep them.

    Numbers, dates and text stay. Periods, tuples and mixed types become text.
    """
    if labels.dtype.kind in "biufM":
        return labels
    texts = np.array([str(label) for label in labels.tolist()], dtype=object)
    for label in texts:
        try:
            label.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"The label {shown(label)} is not valid text, which no file can keep. Rename it."
            ) from None
        if label.endswith("\0"):
            raise InputError(
                f"The label {shown(label)} ends in a character of code 0, which zarr drops. "
                "Rename it."
            )
    if len(set(texts)) < len(set(keys(labels))):
        raise InputError("Different labels are the same as text, such as 1 and '1'. Rename them.")
    return texts


def _write_parquet(
    batches: Iterator[WeightedSums],
    queries: AnyArray,
    index: AnyArray,
    n_outputs: int,
    path: Path,
) -> None:
    """Write a line per explained row and output.

    Its columns are query, output, those of the prediction, score, intercept, and weights or
    contributions, a list in the order of the training rows. These and the intercept sum to the
    score, weights times targets.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(
            "Parquet is written with pyarrow, which is not installed: pip install axil[parquet]."
        ) from None
    writer = None
    start = 0
    try:
        for batch in batches:
            if batch.weights.ndim == 3:
                weights = batch.weights
            else:
                weights = np.broadcast_to(batch.weights, (n_outputs, *batch.weights.shape))
            positions = np.repeat(np.arange(start, start + len(batch)), n_outputs)
            flat = np.ascontiguousarray(np.swapaxes(weights, 0, 1)).reshape(-1)
            columns = {"query": pa.array(queries[positions])}
            if batch.shown_outputs is not None:
                columns["output"] = pa.array(np.tile(batch.shown_outputs, len(batch)))
            scores = batch.predictions.reshape(len(batch), n_outputs)
            prediction_columns = batch.predicted.prediction_columns(scores)
            columns |= {name: pa.array(values) for name, values in prediction_columns.items()}
            columns |= {
                "score": pa.array(scores.reshape(-1)),
                "intercept": pa.array(batch.intercepts.reshape(-1)),
                batch.name: pa.FixedSizeListArray.from_arrays(pa.array(flat), len(index)),
            }
            table = pa.table(columns)
            if writer is None:
                writer = pq.ParquetWriter(
                    path, table.schema, compression="zstd", use_dictionary=False
                )
            writer.write_table(table)
            start += len(batch)
    finally:
        if writer is not None:
            writer.close()


def _format_options(zarr_version: str) -> dict[str, Any]:
    """Return the options for version 2 of the format: version 3 has no standard for text."""
    if int(zarr_version.split(".")[0]) > 2:
        return {"zarr_format": 2}
    return {}


def _write_zarr(
    batches: Iterator[WeightedSums],
    queries: AnyArray,
    index: AnyArray,
    n_outputs: int,
    path: Path,
) -> None:
    """Write a group of arrays.

    They are the weights (n, N) or (n, K, N), or contributions, the predictions, the intercepts, and
    the labels of both sides.
    """
    try:
        import zarr
    except ImportError:
        raise InputError("zarr is not installed: pip install axil[zarr].") from None
    version = _format_options(zarr.__version__)
    zarr.open_group(str(path), mode="w", **version)

    def make(name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any) -> Any:
        chunks = tuple(max(min(size, chunk), 1) for size, chunk in zip(shape, chunks))
        return zarr.open_array(
            store=f"{path}/{name}", mode="w", shape=shape, chunks=chunks, dtype=dtype, **version
        )

    def label(name: str, labels: AnyArray) -> None:
        if labels.dtype == object:
            labels = labels.astype(str)
        make(name, labels.shape, (1 << 20,), labels.dtype)[...] = labels

    label("index", index)
    label("query_index", queries)
    n = len(queries)
    start = 0
    arrays: dict[str, Any] = {}
    for batch in batches:
        rows = slice(start, start + len(batch))
        if not arrays:
            own_outputs = batch.weights.shape[:-2]
            scores = batch.predictions.shape[1:]
            arrays[batch.name] = make(
                batch.name,
                (n, *own_outputs, len(index)),
                (CHUNK[0], *own_outputs, CHUNK[1]),
                np.float64,
            )
            for name in ("predictions", "intercepts"):
                arrays[name] = make(name, (n, *scores), (1 << 16, *scores), np.float64)
        arrays[batch.name][rows] = queries_first(batch.weights)
        arrays["predictions"][rows] = batch.predictions
        arrays["intercepts"][rows] = batch.intercepts
        start = rows.stop
