"""similar: comparables, training rows listed beside the rows that they make predictions of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil import inputs
from axil.aliases import (
    ArrayLike,
    DataFrame,
    Sign,
    SimilarBy,
    Suspects,
    TableLike,
    TreeWeighting,
)
from axil.arrays import BoolArray, FloatArray
from axil.attribution import SIMILARITIES, Quantity, Source
from axil.attribution.capabilities import TREES_BY_ERRORS
from axil.attribution.leaf_matches import RULES, TreeWeights
from axil.errors import CostWarning, InputError, UnsupportedQuestionError, warn
from axil.machine.progress import in_time
from axil.methods import label_issues
from axil.methods.folds import number_of_folds
from axil.methods.kinds import exact_model, with_residuals
from axil.methods.method import AnyModel, ExplainedRows, Method, described
from axil.methods.noise import ON_PAGE
from axil.output import comparables, tables
from axil.output.near_rules import PlainWording
from axil.output.rules import Rules, as_at_least
from axil.output.tables import Predicted
from axil.reductions.choice import Choice, Compared
from axil.replay.fitted_trees import are_boosted
from axil.replay.verified_model import VerifiedModel

SIGNS: tuple[Sign, ...] = ("any", "for", "against")
DEFAULT_SIGNS = {True: "any", False: "for"}  # by whether leaves rank the rows
ACTIONS = ("keep", "mark", "drop")
#: The notes on tables, by whether leaves rank the rows.
RANKED = {
    True: (
        "the rows listed are those that share most leaves with the query: similarity is the share "
        "of trees"
    ),
    False: "the rows listed are those of the largest {}",
}
#: Additions to them, by `RULES`.
COUNTED = {
    "alike": "",
    "variance": ", each weighed by the variance of what it adds to predictions",
    "error": ", each weighed by how much it took away from the row's own error",
    "improved": " among those that took away from the row's own error",
}


class Similar(Method):
    """Provide `Explainer.similar`."""

    def similar(
        self,
        X: TableLike,
        k: int = 10,
        *,
        columns: Sequence[Any] | None = None,
        init_score: ArrayLike | None = None,
        by: SimilarBy | None = None,
        tree_weights: TreeWeighting = "alike",
        adjust: bool = False,
        among: Any = None,
        distinct: Any = None,
        sign: Sign = "any",
        per_class: bool = True,
        within: Any = None,
        asof: Any = None,
        suspects: Suspects = "keep",
        out_of_fold: ArrayLike | None = None,
        beside: Any = None,
        at_least: int | None = None,
        weights: bool = False,
    ) -> DataFrame:
        """Return comparables: the k training rows most similar to each explained row.

        For boosted trees these are the rows that share its leaf in most trees. For all other models
        they are the rows of largest |weight|, which is the same in forests and among neighbours.
        The note of the table says which it was, and ``by`` chooses.

        The table has the columns query, prediction, rank, row, target, and output if there are
        several. Then it has ``name (row)`` and ``name (query)`` for each feature, or for those in
        ``columns``. Rows chosen by their leaves also have ``similarity``, the share of trees. With
        ``weights``, and where weights choose the rows, there are also weight, share and
        contribution. ``share`` is the share of the rows down to this one in ``sum |weight|`` of all
        training rows. A loaded explainer needs the training rows: ``axil.load(path, model,
        X_train=X_train)``.

        With ``adjust`` there are two more columns. ``adjusted`` is the row's target as the model
        adjusts it to the explained row, ``y_j + F(x) - F(x_j)``. ``name (difference)`` is the row's
        value less that of the explained row, for numeric features. Where the table has weights,
        ``adjusted (all)`` is the mean of all training rows' adjusted targets under their weights.
        Both adjusted columns are computed on the scale of the fit and shown in the targets' own
        units, so the mean is a geometric one for logarithms. If weights sum to one, the mean is
        ``F(x) + sum_j k_j r_j`` with the residuals ``r = y - F``; its second term checks for local
        bias.

        Then ``attrs["comparables"]`` of a pandas frame has for each prediction its value, this
        mean, the bias on the scale of the fit, the ``share`` of the weight that the listed rows
        have, and their ``value share``: if their targets were one percent higher, the prediction
        would rise by this share of one percent. It is ``sum k_j y_j / F(x)`` over the listed rows,
        ``sum k_j`` for logarithms, and nan for other transformed targets.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int
            How many training rows per prediction; fewer where ``among``, ``distinct``, ``sign`` and
            ``within`` leave fewer. A warning names the rows of X that they leave none for.
        columns : sequence, optional
            Which features to show, by name or position; all by default.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        by : "leaves", "weight", "contribution" or "derivative", optional
            Which rows are listed: those that share a leaf with the query in most trees, which says
            what is like it; or those of the largest weights (contributions, derivatives), which say
            what made the number. By default leaves for boosted trees, where the two differ
            (experiments/alike.py), and weights for all other models. With "leaves" the column
            ``similarity`` has the share of trees, of all outputs together.
        tree_weights : "alike", "variance", "error" or "improved", default "alike"
            How much each tree counts where leaves decide: all alike; by the variance of what it
            adds to the predictions of the training rows; or, for each row listed, by how much the
            tree took away from that row's own absolute error, or alike if it took any.
            ``similarity`` is a share of that. Of boosted trees only.
        adjust : bool, default False
            Add adjusted targets and differences of features. Only where weights make the
            prediction, not of contributions.
        among : array of bool of shape (n_train,) or function, optional
            The training rows that may be listed, or a function of the training rows as they were
            given that returns such a mask: ``lambda sales: sales["year"] >= 2023``. A function of
            two arguments is asked for each row of X, which it gets as a dict from columns to values
            (of arrays the row): ``lambda sales, home: sales["town"] == home["town"]``.
        distinct : str, int or sequence of length n_train, optional
            A column of the training rows, by name or position, or a label for each of them, such as
            a property's number: of rows with one label only the first by the order of the list is
            listed: the most similar, or that of largest |weight|. Rows without a label stand for
            themselves.
        sign : "any", "for" or "against", default "any"
            Only rows that speak for the prediction, or against it: of numbers those whose weight is
            above or below zero; of classes those that push towards the class that the line is about
            (of two classes the one predicted), or away from it.
        per_class : bool, default True
            Whether each class has a line of its own. False is for models whose classes share their
            weights, such as forests: each training row has one line, with the predicted class and
            its probability, and with the name of the row's own class as target.
        within : pair of a column and a distance, or list of such pairs, optional
            Only rows whose column lies so far from the query's own value at most, on either side:
            ``("sale_date", "3Y")``. The distance is a number for numbers, or a share of the query's
            own value, such as ``"25%"``; for dates a number of days, a timedelta, or text in D, W,
            M or Y: days, weeks, months, years. Two columns of latitudes and longitudes in degrees
            have a length in km, m, miles or feet: ``(("lat", "lon"), "5 km")``. The table then has
            the column ``distance (km)`` or ``distance (miles)``; ``"km"`` alone allows any
            distance. A list of pairs allows the rows that meet all of them.
        asof : date, str or number, optional
            Only rows before this date, such as ``"2025-01-01"``, or before that in a column of X or
            of its frame in ``beside``, given by name; ``within`` says which column of the training
            rows, and how long before at most; of a list, its first pair says so. With ``asof`` a
            column alone will do: ``within="sale_date"``, rows of any time before.
        suspects : "keep", "mark", "drop", labels, truth values or a pair, default "keep"
            What becomes of training rows whose targets look wrong to `find_label_issues`, which is
            asked once: "mark" adds the column ``suspect``, "drop" leaves them out. Your own
            suspects are marked: labels of training rows, or a truth value for each. ``("drop",
            rows)`` leaves these out. Then find_label_issues is not asked.
        out_of_fold : array of shape (n_train,) or (n_train, K), optional
            Predictions of the training rows by your own cross-validation, which `find_label_issues`
            then judges the targets by.
        beside : pair of frames, optional
            Further columns that are no features, of the training rows and of the rows of X, such as
            addresses and dates: ``(sales, homes)``. They are shown, and ``columns``, ``distinct``,
            ``within`` and ``asof`` may name them. A column of one frame alone is shown for its
            rows. One with the name of a feature is left out: give it another name.
        at_least : int, optional
            How many training rows each row of X needs, k at most. A warning names the rows of X
            for which fewer meet the conditions.
        weights : bool, default False
            Add the columns weight, share and contribution where leaves choose the rows. This needs
            the weights of all training rows, which take many times as long as the leaves.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> options = {"adjust": True, "among": lambda rows: rows["sex"] > 0, "sign": "for"}
        >>> table = explainer.similar(X.head(1), 3, columns=["bmi"], **options)
        >>> list(table.columns)[6:11]
        ['share', 'target', 'contribution', 'adjusted', 'adjusted (all)']
        >>> list(table.columns)[11:]
        ['bmi (row)', 'bmi (query)', 'bmi (difference)']
        """
        adjust = inputs.as_flag(adjust, "adjust")
        explained = self._explained_rows("similar", X, init_score)
        model = explained.model
        if adjust:
            model.capabilities.require("similar(adjust=True)")
        if adjust and not per_class:
            raise InputError(
                "per_class=False lists classes by name, which adjust=True cannot move. Leave one "
                "of them out."
            )
        if beside is not None:
            model.capabilities.require("similar(beside=)")
        listing = explained.listing(beside)
        per_class = comparables.as_per_class(
            per_class, model.names.classes is not None and model.weight_layout.is_shared
        )
        suspected = suspect_rows(model, suspects, out_of_fold, len(explained))
        rules = Rules(among, distinct, within, asof, suspected.dropped)
        choice, allowed = model.training.choice(listing.known, k, rules)
        fewest = as_at_least(at_least, choice.k)
        sign = inputs.as_choice(sign, SIGNS, "sign")
        choice = ranked(explained, choice, by, sign, tree_weights)
        source = source_of(explained, choice, inputs.as_flag(weights, "weights"))
        ranking = RANKED[choice.by_leaves].format(model.source.name) + COUNTED[tree_weights]
        rule_texts = rules.texts(listing.known, PlainWording())
        note = _listing_note(ranking, source, model.note(source.note), rule_texts)
        listing = replace(listing, note=note)
        shown_columns = listing.known.chosen(columns)
        n_columns = 15 + 3 * len(shown_columns)
        batches = compared(explained, choice, allowed, adjust, n_columns, source)
        features_of = model.training.lookup(listing.known)
        return comparables.similar_table(
            batches,
            listing,
            shown_columns,
            per_class,
            features_of,
            suspected.marked,
            rules.place(listing.known),
            fewest,
        )


def _listing_note(ranking: str, source: Source, source_note: str, rule_texts: list[str]) -> str:
    """Return the note of a listing: what its numbers are, what ranks the rows, and the rules."""
    if source is SIMILARITIES:
        note = f"{ranking}; {source_note}"
    else:
        note = f"{source_note}; {ranking}"
    if rule_texts:
        note += f"; only rows that meet these rules: {', '.join(rule_texts)}"
    return note


def against_prediction(explained: ExplainedRows, k: int) -> DataFrame:
    """Return the k training rows that speak most against the predicted class of each explained row.

    The table has the columns query, output (the predicted class, or the class that is scored),
    prediction, score, probability, rank, row, target (the row's own class), share, and weight or
    contribution.
    """
    model = explained.model
    number = model.source.name.removesuffix("s")
    choice = ranked(explained, Choice(k, n_threads=model.n_threads), number, "against")
    targets, _ = model.training.gathered()
    if targets.shape[1] > 1:
        codes = targets.argmax(axis=1)
    else:
        codes = targets[:, 0].astype(np.intp)
    batch_columns = []
    for predicted, comparison in compared(explained, choice, None, False, 11):
        columns = comparables.listed(predicted, comparison).columns
        assert model.names.class_names is not None
        columns["target"] = np.asarray(model.names.class_names)[codes[columns.pop("position")]]
        del columns["asked"]
        if predicted.weighted:
            del columns["contribution"]  # of rows of other classes it is zero
        is_shown = np.ones(len(columns["row"]), dtype=bool)
        if model.names.outputs is not None:
            is_shown = columns["output"] == columns["prediction"]
        batch_columns.append({name: values[is_shown] for name, values in columns.items()})
    frame = tables.concatenate(batch_columns, model.backend)
    return tables.note(frame, model.note(model.source.note))


def ranked(
    explained: ExplainedRows,
    choice: Choice,
    by: str | None,
    sign: str | None = "any",
    tree_weights: str = "alike",
) -> Choice:
    """Return the choice with the ranking: by shared leaves, or by weights, and of one sign or any.

    Parameters
    ----------
    explained : ExplainedRows
    choice : Choice
    by : str or None
        "leaves", or the number of the model, such as "weight". By default leaves for boosted trees.
    sign : str or None
        One of `SIGNS`; None for any if leaves rank the rows, and else for "for".
    tree_weights : str
        One of `RULES`.
    """
    model = explained.model
    number = model.source.name.removesuffix("s")
    if by is None:
        if are_boosted(model.trees):
            by = "leaves"
        else:
            by = number
    inputs.as_choice(by, ("leaves", number), "by")
    if by == "leaves":
        model.capabilities.require('similar(by="leaves")')
    if inputs.as_choice(tree_weights, RULES, "tree_weights") != "alike" and by != "leaves":
        raise InputError(
            f'tree_weights is "{tree_weights}", and the rows listed are those of the largest '
            f'{by}s, whatever the trees count. Say by="leaves", or leave tree_weights out.'
        )
    weight_by_tree = weights_of_trees(model, tree_weights)
    if sign is None:
        sign = DEFAULT_SIGNS[by == "leaves"]
    sign = inputs.as_choice(sign, SIGNS, "sign")
    if sign == "for" and by != "leaves" and model.names.classes is None:
        return replace(choice, positive=True)
    sides = None
    if sign != "any":
        sides = np.ones((len(explained), model.shape[1]))
        if model.names.scored_class is not None:
            # A score above zero speaks for the second of two classes.
            sides = np.where(explained.queries.predictions > 0, 1.0, -1.0)
        if sign == "against":
            sides = -sides
    one_hot = model.names.classes is not None and model.source.quantity is Quantity.WEIGHT
    return replace(
        choice,
        by_leaves=by == "leaves",
        tree_weights=weight_by_tree,
        sides=sides,
        of_class=one_hot,
    )


def source_of(explained: ExplainedRows, choice: Choice, weights: bool = False) -> Source:
    """Return the number that a listing needs: similarities, or that of the model.

    Parameters
    ----------
    explained : ExplainedRows
    choice : Choice
    weights : bool
        Whether the listed rows are shown with their weights or contributions.
    """
    if choice.by_leaves and choice.sides is None and not weights:
        return SIMILARITIES
    return explained.model.source


def weights_of_trees(model: VerifiedModel, rule: str) -> TreeWeights | None:
    """Return the weights of trees in comparisons by leaves; None if all are equal.

    Parameters
    ----------
    model : VerifiedModel
    rule : str
        The option ``tree_weights`` of `similar`.
    """
    if rule == "alike":
        return None
    model.capabilities.require("similar(tree_weights=)")
    if rule != "variance":
        model.capabilities.require(TREES_BY_ERRORS)
    trees = model.trees
    if trees is None or not trees.are_boosted or (rule != "variance" and trees.are_rescaled):
        raise UnsupportedQuestionError(
            f'similar(tree_weights="{rule}")',
            "its trees are not fitted one after the other to the residuals of those before",
            "Leave tree_weights out.",
        )
    return model.kept.get(("tree weights", rule), lambda: trees.weights(rule))


@dataclass(frozen=True)
class SuspectRows:
    """The training rows whose targets look wrong, as truth values."""

    marked: BoolArray | None = None  #: (N,) the rows that the list marks
    dropped: BoolArray | None = None  #: (N,) the rows that the list leaves out

    @property
    def were_sought(self) -> bool:
        """Whether axil checked the targets, or the user named suspects."""
        return self.marked is not None or self.dropped is not None


def suspect_rows(
    model: AnyModel, suspects: Suspects, out_of_fold: ArrayLike | None, n_queries: int
) -> SuspectRows:
    """Return the training rows that the user or `find_label_issues` suspects; see `similar`.

    Parameters
    ----------
    model : VerifiedModel
    suspects, out_of_fold
        As in `similar`.
    n_queries : int
        The number of explained rows. axil announces a check that takes longer than these.
    """
    action, rows = _as_suspects(suspects)
    if out_of_fold is not None and (action == "keep" or rows is not None):
        raise InputError(
            "find_label_issues judges targets by out_of_fold, and this call does not need it. Pass "
            'suspects="mark" or suspects="drop", or leave out_of_fold out.'
        )
    if action == "keep":
        return SuspectRows()
    marks = _named_suspects(model, rows)
    if marks is None:
        marks = _checked_suspects(model, action, out_of_fold, n_queries)
    if action == "drop":
        return SuspectRows(dropped=marks)
    return SuspectRows(marked=marks)


def _as_suspects(suspects: Suspects) -> tuple[str, Any]:
    """Return the action on suspects, and the rows that the user names or None."""
    if isinstance(suspects, str) or not hasattr(suspects, "__len__"):
        return inputs.as_choice(suspects, ACTIONS, "suspects"), None
    if isinstance(suspects, tuple) and len(suspects) == 2:
        action, rows = suspects
        is_action = isinstance(action, str) and action in ("mark", "drop")
        if is_action and not isinstance(rows, str):
            return str(action), rows
    return "mark", suspects


def _named_suspects(model: AnyModel, rows: Any) -> BoolArray | None:
    """Return the training rows that the user names, (N,); None if the user names none."""
    if rows is None:
        return None
    marks = np.zeros(model.shape[0], dtype=bool)
    positions = inputs.named_rows(rows, model.training.gathered()[1], "suspects")
    marks[positions] = True
    return marks


def _checked_suspects(
    model: AnyModel, action: str, out_of_fold: ArrayLike | None, n_queries: int
) -> BoolArray:
    """Return the training rows that `find_label_issues` marks, (N,); cached without out_of_fold."""
    try:
        if out_of_fold is not None:
            return label_issues.suspects(model, out_of_fold)
        if "suspects" not in model.kept.known():
            model.capabilities.require("find_label_issues")
            _announce_check(model, action, n_queries)
        marks: BoolArray = model.kept.get("suspects", lambda: label_issues.suspects(model))
    except UnsupportedQuestionError as error:
        raise UnsupportedQuestionError(
            f'suspects="{action}"',
            f"it needs find_label_issues, and {error.reason}",
            'Say suspects="keep".',
        ) from None
    return marks


def _announce_check(model: AnyModel, action: str, n_queries: int) -> None:
    """Warn if the check of the labels takes some seconds, and longer than the rest of the call."""
    n_folds = number_of_folds(model)
    seconds = n_folds * model.deletions.pass_seconds
    if seconds > ON_PAGE and n_folds > n_queries:
        warn(
            f'suspects="{action}" checks the labels of {model.shape[0]} training rows, once for '
            f"this explainer, which takes {in_time(seconds)} on two cores, longer than the rest of "
            'this call. Say suspects="keep", or pass your own: labels or truth values.',
            CostWarning,
        )


def compared(
    explained: ExplainedRows,
    choice: Choice,
    allowed: Sequence[Any] | None,
    adjust: bool,
    n_columns: int,
    source: Source | None = None,
) -> Iterator[tuple[Predicted, Compared]]:
    """Yield batches of predictions with the training rows to list beside them.

    Parameters
    ----------
    explained : ExplainedRows
    choice : Choice
        How many rows are listed, and which.
    allowed : sequence or None
        The training rows that may be listed, shard by shard.
    adjust : bool
        Whether the rows are listed with their residuals.
    n_columns : int
        The columns of the table.
    source : Source, optional
        The number that the listed rows have, as from `source_of`; by default that of the model.
    """
    model = explained.model
    columns = allowed
    if adjust:
        assert allowed is not None
        columns = with_residuals(model, allowed)
    lines = min(choice.k, model.shape[0])
    for batch, comparison in explained.answers(
        choice, lines, n_columns, columns, source, line_bytes=24 * 8
    ):
        if not comparison.has_effects:
            comparison = comparison.with_predictions(batch.predictions)
        yield described(model, batch, model.source), comparison


def fitted_of(model: AnyModel) -> FloatArray:
    """Return the training rows' own predictions, (N, K), computed once."""
    return model.kept.get("fitted", exact_model(model).fitted)
