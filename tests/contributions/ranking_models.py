"""Ranking models of every library with a replay of their gradients in plain loops."""

import json
from dataclasses import dataclass
from functools import cache

import catboost as cb
import lightgbm as lgb
import numpy as np
import xgboost as xgb

import axil
from tests.contributions import ranking_reference as reference

N_NEW = 8


@dataclass(frozen=True, eq=False)
class RankingData:
    """Rows of groups with relevance labels."""

    X: np.ndarray
    labels: np.ndarray
    sizes: np.ndarray
    group_weights: np.ndarray
    row_weights: np.ndarray
    X_new: np.ndarray

    @property
    def group(self):
        """(N,): the number of each row's group."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def groups_and_rows(seed=0, n_rows=150, sizes=(1, 2, 5, 9, 17), n_labels=5):
    """Return rows of groups of these sizes with relevance labels, and unseen rows."""
    rng = np.random.default_rng(seed)
    of_groups = []
    while sum(of_groups) < n_rows:
        of_groups.append(int(rng.choice(sizes)))
    of_groups[-1] -= sum(of_groups) - n_rows
    rows = rng.normal(size=(n_rows + N_NEW, 4))
    rows[:, 2] = np.round(rows[:, 2])
    relevance = 1.2 + rows[:, 0] + 0.5 * rows[:, 1] * rows[:, 2] + 0.7 * rng.normal(size=len(rows))
    labels = np.clip(np.round(relevance), 0, n_labels - 1)[:n_rows]
    weights = np.float32(rng.uniform(0.3, 3, len(of_groups))).astype(float)
    row_weights = np.float32(rng.uniform(0.3, 3, n_rows)).astype(float)
    return RankingData(
        rows[:n_rows], labels, np.array(of_groups), weights, row_weights, rows[n_rows:]
    )


DATA = groups_and_rows()
X = DATA.X
LABELS = DATA.labels
SIZES = DATA.sizes
GROUP = DATA.group
X_NEW = DATA.X_new
GROUP_WEIGHTS = DATA.group_weights
ROW_WEIGHTS = DATA.row_weights


@dataclass(frozen=True)
class Case:
    """A fitted ranking model, the arguments of its explainer, and its gradients."""

    model: object
    labels: np.ndarray
    data: RankingData
    arguments: dict  #: of axil.Explainer beside the labels
    #: (labels, is_present) -> function of scores that returns g and h of the next round
    gradients: object
    rate: float
    l2: object  #: a number, or a function of is_present
    leaves: object  #: rows -> (n, T)
    values: list
    start: float = 0.0
    draws: bool = False  #: whether rows draw numbers
    centred_by: np.ndarray | None = None  #: (N,)
    precision: type = float  #: in which scores are kept

    def explainer(self, **changes):
        """Return the explainer, with some arguments changed."""
        return axil.Explainer(
            self.model, self.data.X, **{"y_train": self.labels, **self.arguments, **changes}
        )

    def replay(self, labels=None, is_present=None, own=False):
        """Return the `ranking_reference.replay` of this fit with other labels or fewer rows."""
        if labels is None:
            labels = self.labels
        if is_present is None:
            is_present = np.ones(len(self.data.X), dtype=bool)
        gradients = self.gradients(labels, is_present)
        leaves = self.leaves(self.data.X)
        new_leaves = self.leaves(self.data.X_new)
        l2 = self.l2
        if callable(l2):
            l2 = l2(is_present)
        centred_by = self.centred_by
        if centred_by is not None:
            centred_by = np.where(is_present, centred_by, 0.0)
        return reference.replay(
            leaves,
            self.values,
            gradients,
            self.rate,
            l2,
            self.start,
            new_leaves,
            own=own,
            centred_by=centred_by,
            precision=self.precision,
        )

    def scores(self):
        """Return the library's own scores of the unseen rows, (n,)."""
        return np.ravel(self.model.predict(self.data.X_new))


LGB = {
    "n_estimators": 8,
    "num_leaves": 6,
    "min_child_samples": 5,
    "learning_rate": 0.2,
    "verbose": -1,
    "n_jobs": 1,
}


def lightgbm_case(objective="lambdarank", weights=None, l2=0.0, gains=None, data=DATA, **settings):
    """Return a model of LGBMRanker."""
    fitted = dict(settings)
    if gains is not None:
        fitted["label_gain"] = gains
    model = lgb.LGBMRanker(objective=objective, reg_lambda=l2, **{**LGB, **fitted})
    model.fit(data.X, data.labels, group=data.sizes, sample_weight=weights)
    row_weights = weights
    if weights is None:
        row_weights = np.ones(len(data.X))
    names = {
        "lambdarank_truncation_level": "top",
        "lambdarank_norm": "norm",
        "sigmoid": "sigmoid",
    }
    options = {names[name]: value for name, value in settings.items() if name in names}

    def gradients(labels, is_present):
        if objective == "rank_xendcg":
            rounds = reference.XeNdcg(settings.get("objective_seed", 5), data.group)
            return lambda scores: rounds(scores, labels, is_present, row_weights)

        def of_present(scores):
            g = np.zeros(len(data.X))
            h = np.zeros(len(data.X))
            parts = (values[is_present] for values in (scores, labels, data.group, row_weights))
            g[is_present], h[is_present] = reference.lambdarank(*parts, gains=gains, **options)
            return g, h

        return of_present

    trees = model.booster_.dump_model()["tree_info"]
    values = [leaf_values(tree["tree_structure"]) for tree in trees]
    arguments = {"group": data.sizes, "sample_weight": weights}
    return Case(
        model,
        data.labels,
        data,
        arguments,
        gradients,
        LGB["learning_rate"],
        l2,
        lambda rows: model.predict(rows, pred_leaf=True).astype(int),
        values,
        draws=objective == "rank_xendcg",
    )


def leaf_values(node):
    """Return the leaf values of a tree that LightGBM dumps, by the number of the leaf."""
    values = {}

    def visit(node):
        if "leaf_value" in node:
            values[node.get("leaf_index", 0)] = node["leaf_value"]
        else:
            visit(node["left_child"])
            visit(node["right_child"])

    visit(node)
    return np.array([values[leaf] for leaf in sorted(values)])


XGB = {
    "n_estimators": 8,
    "max_depth": 3,
    "learning_rate": 0.25,
    "min_child_weight": 0.1,
    "n_jobs": 1,
    "seed": 4,
}
DEFAULT_PAIRS = {"topk": 32, "mean": 1}
XGB_VERSION = tuple(int(part) for part in xgb.__version__.split(".")[:2])


def leaves_and_values_of_xgboost(booster):
    """Return a function from rows to leaves (n, T), each tree's leaf values, and base_score."""
    trees = [tree for _, tree in booster.trees_to_dataframe().groupby("Tree")]
    leaves_of_trees = [tree[tree["Feature"] == "Leaf"] for tree in trees]
    numbers = [dict(zip(leaves["Node"], range(len(leaves)))) for leaves in leaves_of_trees]

    def leaves(rows):
        nodes = booster.predict(xgb.DMatrix(rows), pred_leaf=True).astype(int)
        columns = [
            [leaf_by_node[node] for node in column]
            for leaf_by_node, column in zip(numbers, nodes.T)
        ]
        return np.array(columns).T

    values = [leaves_of_tree["Gain"].to_numpy() for leaves_of_tree in leaves_of_trees]
    config = json.loads(booster.save_config())["learner"]
    return leaves, values, float(config["learner_model_param"]["base_score"].strip("[]"))


def leaves_and_values_of_catboost(model):
    """Return a function from rows to leaves (n, T), and the leaf values of each tree."""
    ends = np.cumsum(model.get_tree_leaf_counts())[:-1]
    values = np.split(model.get_leaf_values(), ends)
    return lambda rows: np.asarray(model.calc_leaf_indexes(rows)).astype(int), values


def seeds_of_round(number, n_groups, words):
    """Return the seed of each group's random pairs in a round of XGBoost."""
    if XGB_VERSION >= (3, 4):
        return [int(words[number]) + group & 0xFFFFFFFF for group in range(n_groups)]
    return [(number + 1) * n_groups + group for group in range(n_groups)]


def xgboost_case(objective="rank:ndcg", weights=None, l2=1.0, data=DATA, **settings):
    """Return a model of XGBRanker; ``weights`` are of the groups."""
    labels = data.labels
    if objective == "rank:map":
        labels = (data.labels >= 2).astype(float)
    model = xgb.XGBRanker(objective=objective, reg_lambda=l2, **XGB, **settings)
    model.fit(data.X, labels, group=data.sizes, sample_weight=weights)
    row_weights = np.ones(len(data.X))
    if weights is not None:
        row_weights = weights[data.group]
    pair_method = settings.get("lambdarank_pair_method", "topk")
    draws = pair_method == "mean"
    n_pairs = settings.get("lambdarank_num_pair_per_sample", DEFAULT_PAIRS[pair_method])
    norms = (
        settings.get("lambdarank_normalization", True),
        settings.get("lambdarank_score_normalization", True),
    )
    words = np.random.RandomState(XGB["seed"]).randint(0, 1 << 32, 20, dtype=np.uint64)[1:]

    def gradients(labels, is_present):
        rounds = iter(range(20))

        def of_present(scores):
            number = next(rounds)
            seeds = None
            if draws:
                seeds = seeds_of_round(number, len(data.sizes), words)
            g = np.zeros(len(data.X))
            h = np.zeros(len(data.X))
            parts = [values[is_present] for values in (scores, labels, data.group, row_weights)]
            g[is_present], h[is_present] = reference.xgboost_ranking(
                objective, *parts, n_pairs, seeds, norms
            )
            return g, h

        return of_present

    leaves, values, start = leaves_and_values_of_xgboost(model.get_booster())
    return Case(
        model,
        labels,
        data,
        {"group": data.sizes, "sample_weight": weights},
        gradients,
        XGB["learning_rate"],
        l2,
        leaves,
        values,
        start=start,
        draws=draws,
        precision=np.float32,
    )


CAT = {
    "iterations": 8,
    "depth": 3,
    "learning_rate": 0.25,
    "leaf_estimation_iterations": 1,
    "verbose": False,
    "thread_count": 1,
    "allow_writing_files": False,
}


def catboost_case(loss="QueryRMSE", weights=None, l2=3.0, data=DATA, **settings):
    """Return a model of CatBoost; ``weights`` are of the rows."""
    model = cb.CatBoost({**CAT, **settings, "loss_function": loss, "l2_leaf_reg": l2})
    model.fit(cb.Pool(data.X, data.labels, group_id=data.group, weight=weights))
    row_weights = weights
    if weights is None:
        row_weights = np.ones(len(data.X))
    options = {}
    centred_by = None
    if loss == "PairLogit":
        centred_by = row_weights
        options["gradient_steps"] = settings.get("leaf_estimation_method") == "Gradient"

    def gradients(labels, is_present):
        of_rows = {"QueryRMSE": reference.query_rmse, "PairLogit": reference.pair_logit}[loss]

        def of_present(scores):
            g = np.zeros(len(data.X))
            h = np.zeros(len(data.X))
            parts = [values[is_present] for values in (scores, labels, data.group, row_weights)]
            g[is_present], h[is_present] = of_rows(*parts, **options)
            return g, h

        return of_present

    leaves, values = leaves_and_values_of_catboost(model)
    return Case(
        model,
        data.labels,
        data,
        {"group": data.group, "sample_weight": weights},
        gradients,
        CAT["learning_rate"],
        lambda is_present: l2 * row_weights[is_present].mean(),
        leaves,
        values,
        centred_by=centred_by,
    )


_MAKERS = {
    "lambdarank": lightgbm_case,
    "lambdarank top 3, group weights": lambda: lightgbm_case(
        weights=GROUP_WEIGHTS[GROUP], lambdarank_truncation_level=3
    ),
    "lambdarank without norm, row weights": lambda: lightgbm_case(
        weights=ROW_WEIGHTS, l2=4.0, lambdarank_norm=False, sigmoid=2.0
    ),
    "lambdarank gains": lambda: lightgbm_case(gains=[0, 1, 5, 6, 20]),
    "rank_xendcg": lambda: lightgbm_case("rank_xendcg"),
    "rank_xendcg seed, row weights": lambda: lightgbm_case(
        "rank_xendcg", ROW_WEIGHTS, objective_seed=11
    ),
    "rank:ndcg": xgboost_case,
    "rank:ndcg top 3, group weights": lambda: xgboost_case(
        weights=GROUP_WEIGHTS, l2=4.0, lambdarank_num_pair_per_sample=3
    ),
    "rank:pairwise, group weights": lambda: xgboost_case("rank:pairwise", GROUP_WEIGHTS),
    "rank:pairwise without norm": lambda: xgboost_case(
        "rank:pairwise", lambdarank_normalization=False
    ),
    "rank:map": lambda: xgboost_case("rank:map"),
    "QueryRMSE": catboost_case,
    "QueryRMSE row weights": lambda: catboost_case(weights=ROW_WEIGHTS, l2=0.5),
    "PairLogit": lambda: catboost_case("PairLogit"),
    "PairLogit group weights": lambda: catboost_case("PairLogit", GROUP_WEIGHTS[GROUP]),
    "PairLogit gradient steps": lambda: catboost_case(
        "PairLogit", leaf_estimation_method="Gradient", grow_policy="Depthwise"
    ),
}
if XGB_VERSION >= (3, 0):
    _MAKERS |= {
        "rank:ndcg without score norm": lambda: xgboost_case(lambdarank_score_normalization=False),
        "rank:ndcg random pairs": lambda: xgboost_case(
            lambdarank_pair_method="mean", lambdarank_num_pair_per_sample=2
        ),
        "rank:map random pairs, group weights": lambda: xgboost_case(
            "rank:map", GROUP_WEIGHTS, lambdarank_pair_method="mean"
        ),
    }
CASES = {name: cache(make) for name, make in _MAKERS.items()}
