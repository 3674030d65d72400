"""Everything the page displays, as a plain dict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, IntArray
from axil.errors import UnsupportedQuestionError
from axil.inputs import chosen_columns, feature_columns
from axil.output.page.about import compared
from axil.output.page.options import Intervals, Options
from axil.output.page.values import DIGITS, FEWER_DIGITS, cells, labels, nested, numbers
from axil.output.predictions import WeightedSums, ratio
from axil.output.site_map import HEIGHT, MARGIN, WIDTH, Places, distance_text, sheets

SHARES = (0.5, 0.8, 0.95)  # of sum |weight|: how many rows account for them
MOST_COLUMNS = 100  # features shown unless they are chosen by name
MOST_CELLS = 500_000  # features of training rows with seven digits each; of more, four keep a page below 5 MB
MOST_GROUPS = 50  # of each prediction, the largest first; all others are one sum
CURVE_POINTS = (
    24  # of the curve of concentration beyond the rows listed, at equal ratios of their numbers
)
DIFFUSE = 0.5  # of sum |weight|: where listed rows hold less of it on average, groups come first


def summarise(parts: Iterable[WeightedSums], options: Options) -> dict[str, Any]:
    """The summary of predictions that come batch by batch, at least one; K outputs in S sets of weights, S = 1 if shared.

    Holds k rows of each prediction, never the weights of more than one batch. What the other rows add up to is kept, so
    that rows, remainder and intercept still sum to the prediction.
    """
    batches: list[dict[str, Any]] = []
    features = []
    names: list[str] = []
    chosen: list[int] = []
    actual = None
    for part in parts:
        actual = options.about.actual(part) if not batches else actual
        if part.additive and options.sigma is not None:
            raise UnsupportedQuestionError(
                "sigma",
                "standard errors follow from weights, and pushes are none",
                "Leave sigma out.",
            )
        about = part.context
        if about is not None:
            names = names or about.names()
            chosen = (
                chosen
                or chosen_columns(options.columns, names)[
                    : MOST_COLUMNS if options.columns is None else None
                ]
            )
            features.append(about.columns(chosen, len(part)))
        batches.append(_batch(part, options))
    made = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    targets, scale = part.targets.reshape(len(part.targets), -1), part.scale
    drawn = None if options.places is None else _map(options.places, made["rows"], made["weights"])
    if options.intervals is not None:
        made["wide_rows"] = np.where(options.intervals.shares > 0, options.intervals.rows, -1)
    named = [name for name in ("rows", "wide_rows") if name in made]
    positions = np.unique(np.concatenate([made[name].ravel() for name in named]))
    positions = positions[positions >= 0]  # -1 is a place without a row
    for name in named:
        made[name] = np.where(made[name] < 0, -1, np.searchsorted(positions, made[name]))
    held = ratio(np.abs(made["weights"]).sum(axis=2), made["sizes"])  # by the rows listed
    digits = DIGITS if len(positions) * len(chosen) <= MOST_CELLS else FEWER_DIGITS
    beside = None
    if about is not None and about.X_train is not None:
        beside = [cells(own, digits) for own in feature_columns(about.X_train, positions, chosen)]
    return {
        "kind": part.kind,
        "n_train": len(targets),
        "n": len(made["labels"]),
        "k": made["rows"].shape[2],
        "outputs": None if part.outputs is None else labels(part.outputs),
        "shares": list(SHARES),
        "curve_ranks": _ranks(made["rows"].shape[2], len(targets)).tolist(),
        "diffuse": bool(held.size and held.mean() < DIFFUSE),
        "means": targets.mean(
            axis=0
        ).tolist(),  # with every digit, as the exponential of a logarithm shows them
        "scale": None
        if scale.is_identity
        else {"name": scale.name, "base": scale.base, "shift": scale.shift},
        "features": [names[i] for i in chosen],
        "features_left_out": len(names) - len(chosen) if options.columns is None else 0,
        "feature_digits": digits,
        "about_sigma": options.about_sigma,
        "refits": None
        if options.refits is None
        else {"std": nested(options.refits[0]), "words": options.refits[1]},
        "intervals": None
        if options.intervals is None
        else _intervals(options.intervals, made["wide_rows"]),
        "map": drawn,
        **options.about.words(),
        "actual": None
        if actual is None
        else compared(actual, part, made.get("means", made["shown"])),
        "classes": None if part.classes is None else labels(part.classes),
        "held": "" if about is None else about.held,
        "combined": None if about is None or about.combined is None else about.combined.tolist(),
        "queries": {
            "labels": labels(made["labels"]),
            # Of one batch a column as it is, so that its type stays
            "features": [
                cells(own[0] if len(own) == 1 else np.concatenate(own), digits)
                for own in zip(*features)
            ],
        },
        "training": {
            "labels": labels(part.index[positions]),
            "targets": [numbers(column) for column in targets[positions].T],
            "classes": None if part.classes is None else part.class_numbers[positions].tolist(),
            "shown": None
            if part.seen is None
            else [numbers(column) for column in part.shown[positions].T],
            "features": beside,
        },
        "shown": None if scale.is_identity else [numbers(column) for column in made["shown"].T],
        "meaning": "" if part.account is None else part.account.meaning,
        "means_of_scores": [numbers(column) for column in made["means"].T]
        if "means" in made
        else None,
        "groups": None if options.groups is None else labels(options.groups[1]),
        **_columns(made, options, about is not None and about.predictions is not None),
    }


def _intervals(known: Intervals, rows: IntArray) -> dict[str, Any]:
    """The intervals, with the places of their rows among those of the page."""
    names = ("lower", "upper", "alarm", "weights", "errors", "shares")
    about = {
        name: getattr(known, name)
        for name in ("coverage", "n_calibration", "source", "training_errors")
    }
    return about | {"rows": nested(rows)} | {name: nested(getattr(known, name)) for name in names}


def _map(places: Places, rows: IntArray, weights: FloatArray) -> dict[str, Any]:
    """Drawings of rows (n, S, k): numbers of a drawing's units, to a tenth."""
    n, sets, k = rows.shape
    found = sheets(
        places,
        np.repeat(np.arange(n), sets),
        rows.reshape(n * sets, k),
        weights.reshape(n * sets, k),
    )
    parts = {
        "x": found.x,
        "y": found.y,
        "radius": found.radius,
        "query": found.query,
        "bar": found.bar,
    }
    numbers_ = {name: nested(own.round(1).reshape(n, sets, -1)) for name, own in parts.items()}
    away = [
        [distance_text(one, found.unit) for one in found.away[s::sets].ravel()] for s in range(sets)
    ]
    texts = [
        [distance_text(one, found.unit, "g") for one in found.bar[s::sets, 1]] for s in range(sets)
    ]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "margin": MARGIN,
        "away": away,
        "bar_text": texts,
        **numbers_,
    }


def _columns(made: dict[str, Any], options: Options, compared: bool) -> dict[str, Any]:
    """The numbers of all predictions: [outputs or sets][predictions * values]; those of the proof with every digit."""
    shown: dict[str, Any] = {
        name: made[name].T.tolist() for name in ("predictions", "intercepts", "totals")
    }
    shown["model"] = made["model"].T.tolist() if compared else None
    shown["standard_errors"] = None
    if options.sigma is not None:
        errors = np.broadcast_to(options.sigma * made["norms"], made["predictions"].shape)
        shown["standard_errors"] = nested(errors)
    names = ["rows", "weights", "rest_weights", "rest_contributions"]
    names += ["sizes", "effective_sizes", "negative_shares", "needed", "curve"]
    if options.groups is not None:
        names += [
            "group_rows",
            "group_weights",
            "group_contributions",
            "group_rest_weights",
            "group_rest_contributions",
        ]
    return shown | {name: nested(made[name]) for name in names}


def _batch(part: WeightedSums, options: Options) -> dict[str, Any]:
    """Arrays (n, ...) of the predictions of one batch."""
    n, outputs = len(part), 1 if part.outputs is None else len(part.outputs)
    sets = outputs if part.weights.ndim == 3 else 1
    predictions, intercepts = (
        part.predictions.reshape(n, outputs),
        part.intercepts.reshape(n, outputs),
    )
    largest = part.largest(options.k)
    rows, weights = (
        np.stack([getattr(one, name) for one in largest], axis=1) for name in ("rows", "values")
    )
    targets = [own[one.rows] for (_, own), one in zip(part.by_output(), largest)]
    contributions = weights * np.stack(targets, axis=1)
    everything = rows.shape[2] == len(part.targets)  # then nothing is left but rounding
    needed, curve = part.curves(np.array(SHARES), _ranks(rows.shape[2], len(part.targets)))
    totals = np.asarray(part.weights.sum(axis=-1)).reshape(sets, n).T
    model = None if part.context is None else part.context.predictions
    made = {
        "labels": part.query_index,
        "predictions": predictions,
        "shown": part.shown_predictions.reshape(n, outputs),
        "intercepts": intercepts,
        "model": predictions if model is None else model,
        "rows": np.where(weights != 0, rows, -1)[:, :sets],
        "weights": weights[:, :sets],
        "totals": totals,
        "rest_weights": (totals - weights[:, :sets].sum(axis=2)) * (not everything),
        "rest_contributions": (predictions - intercepts - contributions.sum(axis=2))
        * (not everything),
        "needed": needed,
        "curve": curve,
        "sizes": part.sizes.reshape(sets, n).T,
        "norms": part.norms.reshape(sets, n).T,
        "effective_sizes": part.effective_size.reshape(sets, n).T,
        "negative_shares": part.negative_share.reshape(sets, n).T,
    }
    if part.account is not None and part.account.means is not None:
        made["means"] = part.account.means
    return (
        made if options.groups is None else made | _groups(part, *options.groups, n, outputs, sets)
    )


def _ranks(listed: int, n_train: int) -> IntArray:
    """Numbers of rows beyond those listed at which the curve of concentration is known."""
    found = np.geomspace(listed + 1, n_train, CURVE_POINTS) if listed < n_train else np.zeros(0)
    return np.unique(found.round().astype(np.intp))


def _groups(
    part: WeightedSums,
    codes: IntArray,
    groups: NDArray[Any],
    n: int,
    outputs: int,
    sets: int,
) -> dict[str, Any]:
    """The groups of largest |weight| of each prediction, and what all others add up to."""
    columns, of_fit = part.group_columns(codes, groups), part.scale.label("contribution")
    names = "contribution" if part.additive else "weight", of_fit  # pushes are both
    weights, contributions = (columns[name].reshape(n, outputs, len(groups)) for name in names)
    weights = weights[:, :sets]
    order = np.argsort(-np.abs(weights), axis=2, kind="stable")
    first, last = order[:, :, :MOST_GROUPS], order[:, :, MOST_GROUPS:]
    of_outputs = [np.broadcast_to(own, (n, outputs, own.shape[2])) for own in (first, last)]
    return {
        "group_rows": first,
        "group_weights": np.take_along_axis(weights, first, axis=2),
        "group_contributions": np.take_along_axis(contributions, of_outputs[0], axis=2),
        "group_rest_weights": np.take_along_axis(weights, last, axis=2).sum(axis=2),
        "group_rest_contributions": np.take_along_axis(contributions, of_outputs[1], axis=2).sum(
            axis=2
        ),
    }
