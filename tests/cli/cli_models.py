"""Models, tables and words of the commands that the tests of the command line share."""

import csv
import pickle
import subprocess

import catboost
import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd
import skops.io
import xgboost as xgb
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

N_TRAIN, N_QUERY = 150, 3
FEATURES = ["age", "sex", "bmi", "bp"]
RNG = np.random.default_rng(0)


def frames():
    """Training, query and validation rows with labels, weights, two targets, a class and a category."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    frame = X[FEATURES].assign(
        y=y, y2=y**2 / 100, w=RNG.uniform(0.5, 2, len(X)), kind=np.where(y > 140, "high", "low")
    )
    frame["city"] = np.array(["Oslo", "Rome", "Lima"])[RNG.integers(0, 3, len(X))]
    frame.insert(0, "id", [f"p{i:03d}" for i in range(len(X))])
    parts = (
        frame.iloc[:N_TRAIN],
        frame.iloc[N_TRAIN : N_TRAIN + N_QUERY],
        frame.iloc[N_TRAIN + N_QUERY : N_TRAIN + 60],
    )
    return [part.reset_index(drop=True) for part in parts]


TRAIN, QUERY, VALIDATION = frames()
X, Y = TRAIN[FEATURES], TRAIN["y"]


def lightgbm_model(**settings):
    return lgb.LGBMRegressor(
        n_estimators=8, num_leaves=6, min_child_samples=5, n_jobs=1, verbose=-1, **settings
    )


def catboost_model():
    return catboost.CatBoostRegressor(iterations=6, depth=3, verbose=0, allow_writing_files=False)


MODELS = {  # file: the model as fitted, how it is written
    "lightgbm.txt": (lightgbm_model(), lambda model, path: model.booster_.save_model(path)),
    "xgboost.json": (
        xgb.XGBRegressor(n_jobs=1, n_estimators=5, max_depth=3),
        lambda model, path: model.save_model(path),
    ),
    "xgboost.ubj": (
        xgb.XGBRegressor(n_jobs=1, n_estimators=5, max_depth=3),
        lambda model, path: model.save_model(path),
    ),
    "catboost.cbm": (catboost_model(), lambda model, path: model.save_model(str(path))),
    "forest.skops": (RandomForestRegressor(5, random_state=0), skops.io.dump),
    "ridge.skops": (make_pipeline(StandardScaler(), Ridge()), skops.io.dump),
    "forest.pkl": (
        RandomForestRegressor(5, random_state=0),
        lambda model, path: path.write_bytes(pickle.dumps(model)),
    ),
    "forest.joblib": (RandomForestRegressor(5, random_state=0), joblib.dump),
    "xgboost.pkl": (
        xgb.XGBRFRegressor(n_jobs=1, n_estimators=4),
        lambda model, path: path.write_bytes(pickle.dumps(model)),
    ),
    "packed.joblib": (Ridge(), lambda model, path: joblib.dump(model, path, compress=3)),
}
TRUSTED = (
    "forest.skops",
    "forest.pkl",
    "forest.joblib",
    "xgboost.pkl",
    "packed.joblib",
)  # cannot be read without --trust


def table_of(text):
    """A table out of CSV; the numbers in it by Python itself."""
    frame = pd.DataFrame(list(csv.DictReader(text.splitlines())))
    return frame.apply(
        lambda column: column if column.str.match("[a-zA-Z]").any() else column.map(float)
    )


DATA = "--train train.csv --target y --weights w --index id"
PLAIN = "--train train.csv --target y"
EXPLAIN = f"explain lightgbm.txt {PLAIN}"
INTERVALS = f"intervals lightgbm.txt {PLAIN} --query query.csv"


def trust(name):
    return " --trust" if name in TRUSTED else ""


FILES = {
    "empty.csv": b"",
    "header.csv": b"age,sex,bmi,bp,y\n",
    "semicolons.csv": b"age;sex;bmi;bp;y\n1;2;3;4;5\n",
    "ragged.csv": b"age,sex,bmi,bp,y\n1,2,3,4,5\n1,2,3,4,5,6,7\n",
    "wide.csv": b"age,sex,bmi,bp,y\n1,2,3,4,5,6\n1,2,3,4,5,6\n",
    "latin.csv": "age,sex,bmi,bp,y,Stra\xdfe\n1,2,3,4,5,6\n".encode("latin-1"),
    "text.csv": b"age,sex,bmi,bp,y\n1,2,3,4,5\n1,2,?,4,5\n",
    "text_target.csv": b"age,sex,bmi,bp,y\n1,2,3,4,5\n1,2,3,4,none\n1,2,3,4,lots\n",
    "gap.csv": b"age,sex,bmi,bp,y\n1,2,3,4,5\n1,2,3,4,\n",
    "broken.parquet": b"PAR1 but not really",
    "table.xlsx": b"PK",
    "data.csv.gz": b"not gzip",
}


def shell(words, cwd, **more):
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=120, **more)
