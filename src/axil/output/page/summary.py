"""Collect everything that a page displays in one plain dict, which its script reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import UnsupportedQuestionError
from axil.inputs import chosen_columns, feature_columns, without_hidden
from axil.output.context import Context
from axil.output.page.options import GroupNumbers, Intervals, Options
from axil.output.page.values import DIGITS, FEWER_DIGITS, cells, labels, nested, number, numbers
from axil.output.predictions import WeightedSums, ratio
from axil.output.site_map import HEIGHT, MARGIN, WIDTH, Places, distance_text, sheets

#: What the page displays, by name, in types that JSON has once `numbers` were taken.
PageData: TypeAlias = dict[str, Any]

SHARES = (0.5, 0.8, 0.95)  # of sum |weight|; the page says how many rows account for them
MOST_COLUMNS = 100  # features shown unless they are chosen by name
MOST_CELLS = (
    500_000  # features of training rows with seven digits each; beyond, four keep a page below 5 MB
)
MOST_GROUPS = 50  # of each prediction, the largest first; all others are one sum
CURVE_POINTS = 24  # of the concentration curve beyond the listed rows, at equal ratios of ranks
DIFFUSE = 0.5  # groups come first where the listed rows hold less than this share of sum |weight|

NUMBERS: tuple[str, ...] = (
    "rows",
    "weights",
    "rest_weights",
    "rest_contributions",
    "sizes",
    "effective_sizes",
    "negative_shares",
    "needed",
    "curve",
)
GROUP_NUMBERS: tuple[str, ...] = (
    "group_rows",
    "group_weights",
    "group_contributions",
    "group_rest_weights",
    "group_rest_contributions",
)


def summarise(parts: Iterable[WeightedSums], options: Options) -> PageData:
    """Return the summary of predictions that come in one or more batches.

    It holds k rows of each prediction, and never needs the weights of more than one batch. It also
    has the sum of all other rows, so that rows, remainder and intercept still sum to the
    prediction. There are K outputs in S sets of weights; S is 1 if outputs share their weights.
    """
    summary = Summary(options)
    for sums in parts:
        summary.add(sums)
    return summary.as_dict()


class Summary:
    """Collects batches of predictions, and then makes one plain dict of them."""

    def __init__(self, options: Options):
        self.options = options
        self.sums: WeightedSums  #: the last batch
        self.actual: FloatArray | None = None
        self._batches: list[PageData] = []
        self._query_features: list[list[AnyArray]] = []
        self._feature_names: list[str] = []
        self._chosen: list[int] = []  # features shown, by position

    def add(self, sums: WeightedSums) -> None:
        """Collect the numbers of one batch."""
        if not self._batches:
            self.actual = self.options.about.actual(sums)
        if sums.additive and self.options.sigma is not None:
            raise UnsupportedQuestionError(
                "sigma",
                "standard errors follow from weights, and contributions are none",
                "Leave sigma out.",
            )
        if sums.context is not None:
            self._choose_features(sums.context)
            self._query_features.append(sums.context.columns(self._chosen, len(sums)))
        self._batches.append(_batch_numbers(sums, self.options))
        self.sums = sums

    def _choose_features(self, context: Context) -> None:
        """Choose the features to show, with the first batch."""
        if not self._feature_names:
            self._feature_names = context.names()
        if not self._chosen:
            options = self.options
            names = self._feature_names
            chosen = chosen_columns(options.columns, names)
            hidden = set(chosen_columns(options.hide, names, "hide"))
            chosen = without_hidden(chosen, hidden, names, options.columns is not None)
            if options.columns is None:
                chosen = chosen[:MOST_COLUMNS]
            self._chosen = chosen

    def as_dict(self) -> PageData:
        """Return everything that the page displays."""
        joined = {
            name: np.concatenate([batch[name] for batch in self._batches])
            for name in self._batches[0]
        }
        drawn = None
        if self.options.places is not None:
            drawn = _map(self.options.places, joined["rows"], joined["weights"])
        positions = self._number_rows(joined)
        digits = DIGITS
        if len(positions) * len(self._chosen) > MOST_CELLS:
            digits = FEWER_DIGITS
        return {
            **self._about_model(joined),
            **self._about_options(joined),
            "map": drawn,
            "feature_digits": digits,
            "queries": self._queries(joined, digits),
            "training": self._training(positions, digits),
            **self._numbers(joined),
        }

    def _number_rows(self, joined: PageData) -> IntArray:
        """Number the listed training rows from zero, in place, and return their positions."""
        intervals = self.options.intervals
        if intervals is not None:
            joined["wide_rows"] = np.where(intervals.shares > 0, intervals.rows, -1)
        names = [name for name in ("rows", "wide_rows") if name in joined]
        positions = np.unique(np.concatenate([joined[name].ravel() for name in names]))
        positions = positions[positions >= 0]  # -1 is a place without a row
        for name in names:
            rows = joined[name]
            joined[name] = np.where(rows < 0, -1, np.searchsorted(positions, rows))
        return positions

    def _about_model(self, joined: PageData) -> PageData:
        """Return facts about the model and all of its predictions."""
        sums = self.sums
        targets = sums.targets.reshape(len(sums.targets), -1)
        n_listed = joined["rows"].shape[2]
        listed_share = ratio(np.abs(joined["weights"]).sum(axis=2), joined["sizes"])
        scale = None
        if not sums.scale.is_identity:
            scale = {"name": sums.scale.name, "base": sums.scale.base, "shift": sums.scale.shift}
        context = sums.context
        combined = None
        if context is not None and context.combined is not None:
            combined = context.combined.tolist()
        return {
            "kind": sums.kind,
            "n_train": len(targets),
            "n": len(joined["labels"]),
            "k": n_listed,
            "outputs": None if sums.outputs is None else labels(sums.outputs),
            "classes": None if sums.classes is None else labels(sums.classes),
            "shares": list(SHARES),
            "curve_ranks": _curve_ranks(n_listed, len(targets)).tolist(),
            "diffuse": bool(listed_share.size and listed_share.mean() < DIFFUSE),
            # with every digit, because the exponential of a logarithm shows them
            "means": targets.mean(axis=0).tolist(),
            "scale": scale,
            "meaning": "" if sums.account is None else sums.account.meaning,
            "held": "" if context is None else context.held,
            "combined": combined,
        }

    def _about_options(self, joined: PageData) -> PageData:
        """Return the content of the user's options."""
        options = self.options
        stability = None
        if options.stability is not None:
            spread, description = options.stability
            stability = {"std": nested(spread), "words": description}
        intervals = None
        if options.intervals is not None:
            intervals = _intervals(options.intervals, joined["wide_rows"])
        actual = None
        if self.actual is not None:
            predictions = joined["shown"]
            if "means" in joined:
                predictions = joined["means"]
            actual = _actual_values(self.actual, self.sums, predictions)
        n_left_out = 0
        if options.columns is None:
            n_left_out = len(self._feature_names) - len(self._chosen)
        return {
            "features": [self._feature_names[i] for i in self._chosen],
            "features_left_out": n_left_out,
            "about_sigma": options.about_sigma,
            "stability": stability,
            "intervals": intervals,
            **options.about.words(),
            "actual": actual,
            "groups": None if options.groups is None else labels(options.groups[1]),
        }

    def _queries(self, joined: PageData, digits: int) -> PageData:
        """Return the labels and features of the explained rows."""
        features = []
        for batches in zip(*self._query_features):
            # the column of a single batch is not copied, so that its type stays
            if len(batches) == 1:
                column = batches[0]
            else:
                column = np.concatenate(batches)
            features.append(cells(column, digits))
        return {"labels": labels(joined["labels"]), "features": features}

    def _training(self, positions: IntArray, digits: int) -> PageData:
        """Return the labels, targets and features of the listed training rows."""
        sums = self.sums
        targets = sums.targets.reshape(len(sums.targets), -1)
        features = None
        if sums.context is not None and sums.context.X_train is not None:
            columns = feature_columns(sums.context.X_train, positions, self._chosen)
            features = [cells(column, digits) for column in columns]
        readable = None
        if sums.seen is not None:
            readable = [numbers(column) for column in sums.shown[positions].T]
        return {
            "labels": labels(sums.index[positions]),
            "targets": [numbers(column) for column in targets[positions].T],
            "classes": None if sums.classes is None else sums.class_numbers[positions].tolist(),
            "shown": readable,
            "features": features,
        }

    def _numbers(self, joined: PageData) -> PageData:
        """Return the numbers of all predictions as [outputs or sets][predictions * values].

        Those that the page's verification adds up have every digit.
        """
        sums = self.sums
        options = self.options
        summary: PageData = {
            name: joined[name].T.tolist() for name in ("predictions", "intercepts", "totals")
        }
        summary["model"] = None
        if sums.context is not None and sums.context.predictions is not None:
            summary["model"] = joined["model"].T.tolist()
        summary["standard_errors"] = None
        if options.sigma is not None:
            errors = np.broadcast_to(options.sigma * joined["norms"], joined["predictions"].shape)
            summary["standard_errors"] = nested(errors)
        summary["shown"] = None
        if not sums.scale.is_identity:
            summary["shown"] = [numbers(column) for column in joined["shown"].T]
        summary["means_of_scores"] = None
        if "means" in joined:
            summary["means_of_scores"] = [numbers(column) for column in joined["means"].T]
        if options.groups is None:
            names = NUMBERS
        else:
            names = NUMBERS + GROUP_NUMBERS
        return summary | {name: nested(joined[name]) for name in names}


def _actual_values(actual: FloatArray, sums: WeightedSums, predictions: FloatArray) -> PageData:
    """Return the actual values, and how far the predictions (n, K) are from them.

    This is the median error of each output, which a few wrong values do not move, or the number of
    correct classes.
    """
    if sums.classes is not None:
        predicted = predictions.argmax(axis=1)
        if predictions.shape[1] == 1:  # the probability of the second class
            predicted = (predictions[:, 0] > 0.5).astype(np.intp)
        n_correct = int((predicted == actual[:, 0]).sum())
        return {"values": nested(actual), "typical": None, "right": n_correct}
    errors = np.zeros(actual.shape[1])
    if len(actual):
        errors = np.median(np.abs(actual - predictions), axis=0)
    typical = [number(error) for error in errors]
    return {"values": nested(actual), "typical": typical, "right": None}


def _intervals(intervals: Intervals, rows: IntArray) -> PageData:
    """Return the intervals; ``rows`` has the positions of their training rows on the page."""
    facts = ("confidence_level", "n_calibration", "source", "training_errors")
    arrays = ("lower", "upper", "uncertainty_rank", "weights", "errors", "shares")
    summary: PageData = {name: getattr(intervals, name) for name in facts}
    summary["rows"] = nested(rows)
    return summary | {name: nested(getattr(intervals, name)) for name in arrays}


def _map(places: Places, rows: IntArray, weights: FloatArray) -> PageData:
    """Return the drawings of rows (n, S, k), in units of the drawing, to a tenth."""
    n, n_sets, k = rows.shape
    queries = np.repeat(np.arange(n), n_sets)
    drawings = sheets(places, queries, rows.reshape(n * n_sets, k), weights.reshape(n * n_sets, k))
    distances = []
    bar_texts = []
    for s in range(n_sets):
        away = drawings.away[s::n_sets].ravel()
        bars = drawings.bar[s::n_sets, 1]
        distances.append([distance_text(distance, drawings.unit) for distance in away])
        bar_texts.append([distance_text(length, drawings.unit, "g") for length in bars])
    summary: PageData = {
        "width": WIDTH,
        "height": HEIGHT,
        "margin": MARGIN,
        "away": distances,
        "bar_text": bar_texts,
    }
    for name in ("x", "y", "radius", "query", "bar"):
        values: FloatArray = getattr(drawings, name)
        summary[name] = nested(values.round(1).reshape(n, n_sets, -1))
    return summary


def _batch_numbers(sums: WeightedSums, options: Options) -> PageData:
    """Return arrays (n, ...) of the predictions of one batch."""
    n = len(sums)
    if sums.outputs is None:
        n_outputs = 1
    else:
        n_outputs = len(sums.outputs)
    if sums.weights.ndim == 3:
        n_sets = n_outputs
    else:
        n_sets = 1
    predictions = sums.predictions.reshape(n, n_outputs)
    intercepts = sums.intercepts.reshape(n, n_outputs)
    largest_by_output = sums.largest(options.k)
    rows = np.stack([largest.rows for largest in largest_by_output], axis=1)
    weights = np.stack([largest.values for largest in largest_by_output], axis=1)
    targets = [
        values[largest.rows] for (_, values), largest in zip(sums.by_output(), largest_by_output)
    ]
    contributions = weights * np.stack(targets, axis=1)
    ranks = _curve_ranks(rows.shape[2], len(sums.targets))
    needed, curve = sums.curves(np.array(SHARES), ranks)
    totals = np.asarray(sums.weights.sum(axis=-1)).reshape(n_sets, n).T
    has_rest = rows.shape[2] < len(sums.targets)  # otherwise only rounding is left
    model = predictions
    if sums.context is not None and sums.context.predictions is not None:
        model = sums.context.predictions
    batch = {
        "labels": sums.query_index,
        "predictions": predictions,
        "shown": sums.shown_predictions.reshape(n, n_outputs),
        "intercepts": intercepts,
        "model": model,
        "rows": np.where(weights != 0, rows, -1)[:, :n_sets],
        "weights": weights[:, :n_sets],
        "totals": totals,
        "rest_weights": (totals - weights[:, :n_sets].sum(axis=2)) * has_rest,
        "rest_contributions": (predictions - intercepts - contributions.sum(axis=2)) * has_rest,
        "needed": needed,
        "curve": curve,
        "sizes": sums.sizes.reshape(n_sets, n).T,
        "norms": sums.norms.reshape(n_sets, n).T,
        "effective_sizes": sums.effective_size.reshape(n_sets, n).T,
        "negative_shares": sums.negative_share.reshape(n_sets, n).T,
    }
    if sums.account is not None and sums.account.means is not None:
        batch["means"] = sums.account.means
    if options.groups is not None:
        batch |= _group_numbers(sums, options.groups, n_outputs, n_sets)
    return batch


def _curve_ranks(n_listed: int, n_train: int) -> IntArray:
    """Return the ranks of the concentration curve beyond the listed rows."""
    if n_listed >= n_train:
        return np.zeros(0, dtype=np.intp)
    ranks = np.geomspace(n_listed + 1, n_train, CURVE_POINTS)
    return np.unique(ranks.round().astype(np.intp))


def _group_numbers(
    sums: WeightedSums, groups: GroupNumbers, n_outputs: int, n_sets: int
) -> PageData:
    """Return the groups of largest |weight| per prediction, and the sums over all other groups."""
    codes, names = groups
    grouped = sums.grouped(codes, names)
    contributions = grouped.contributions
    if sums.additive:
        weights = contributions[:, :n_sets]
    else:
        weights = grouped.effects[:, :n_sets]
    order = np.argsort(-np.abs(weights), axis=2, kind="stable")
    largest = order[:, :, :MOST_GROUPS]
    other_groups = order[:, :, MOST_GROUPS:]
    largest_of_outputs = np.broadcast_to(largest, (len(sums), n_outputs, largest.shape[2]))
    others_of_outputs = np.broadcast_to(other_groups, (len(sums), n_outputs, other_groups.shape[2]))
    other_contributions = np.take_along_axis(contributions, others_of_outputs, axis=2)
    return {
        "group_rows": largest,
        "group_weights": np.take_along_axis(weights, largest, axis=2),
        "group_contributions": np.take_along_axis(contributions, largest_of_outputs, axis=2),
        "group_rest_weights": np.take_along_axis(weights, other_groups, axis=2).sum(axis=2),
        "group_rest_contributions": other_contributions.sum(axis=2),
    }
