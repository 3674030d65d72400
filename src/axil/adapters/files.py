"""From a file to a fitted model.

The first bytes of the file show which library wrote it. Nothing is unpickled without --trust.
"""

from __future__ import annotations

import json
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from axil.adapters.lightgbm.text import check
from axil.aliases import ForeignModel
from axil.errors import AxilError, InputError, shortened
from axil.machine.atomic import atomic

HEAD = 4096  # bytes by which a format is recognised
SHOWN = 24  # of them, in a message about a file that is none of ours
PICKLES = (".pkl", ".pickle", ".joblib")
FORMATS = "LightGBM's text (.txt), XGBoost's .json and .ubj, CatBoost's .cbm and skops' .skops"


@dataclass(frozen=True)
class Format:
    """A kind of file that a fitted model can be read from."""

    name: str  #: for messages
    extra: str  #: what ``pip install 'axil[...]'`` needs to read it
    save: str  #: how to write such a file
    read: Callable[[Path, bool], Any]  #: the model, from a path and whether the user trusts it
    write: Callable[[Any, Path], Any]  #: of a model, to a path
    endings: tuple[str, ...]  #: of the files that it writes, the usual one first


def load(path: str | Path, trust: bool = False) -> ForeignModel:
    """Return the fitted model in a file.

    Pickles, and types that skops does not know, are read only with ``trust``.

    LightGBM's text, XGBoost's JSON and UBJSON and CatBoost's .cbm hold numbers alone. A pickle runs
    what its author put in.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a directory; expected the file of a fitted model: {FORMATS}.")
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise InputError(
            f"The model {path} cannot be read: {error.strerror}. Give the file of a fitted model."
        ) from None
    kind = _format_of(path, head)
    try:
        return kind.read(path, trust)
    except InputError as error:
        raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    except ImportError as error:
        raise InputError(
            f"{path} is {kind.name}, and reading it needs {error.name or 'a library'}, which is "
            f"not installed. Run: pip install 'axil[{kind.extra}]'"
        ) from None
    except Exception as error:  # each library has its own, and a pickle may raise anything
        raise InputError(
            f"{path} looks like {kind.name} but cannot be read ({_first_line(error)}). "
            "It may be cut short, or written by another version; save the model again with "
            f"{kind.save}."
        ) from None


def save(model: ForeignModel, path: str | Path, like: str | Path) -> None:
    """Write a model to a file, in the format of another model file."""
    path = Path(path)
    with Path(like).open("rb") as file:
        kind = _format_of(Path(like), file.read(HEAD))
    if path.suffix.lower() not in kind.endings:
        raise InputError(
            f"{path} (--out) does not end in {' or '.join(kind.endings)}; expected such a name, "
            f"because the new model is written as {kind.name}, like {like}."
        )
    with atomic(path) as temporary:
        written = temporary.with_suffix(path.suffix)  # by whose ending XGBoost knows the form
        kind.write(model, written)
        written.replace(temporary)


def has_settings(path: str | Path) -> bool:
    """Return whether a model's file holds the estimator with its settings, not trees alone."""
    with Path(path).open("rb") as file:
        return _format_of(Path(path), file.read(HEAD)) in (SKOPS, PICKLE)


@contextmanager
def usable(path: object, data: object = None) -> Iterator[None]:
    """Add the names of the model's and the data's files to an error of another library."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") if data is None else error from None
    except (AxilError, MemoryError):
        raise
    except Exception as error:
        if data is None:
            beside = ""
        else:
            beside = f" on the rows of {data}"
        raise InputError(
            f"The model in {path} was read but cannot be used{beside} ({_first_line(error)}). The "
            "file may be damaged, or written by another version of its library: save the model "
            "again. --debug shows where it happened."
        ) from error


def _first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of its message."""
    lines = str(error).strip().splitlines() or ["no reason given"]
    return shortened(f"{type(error).__name__}: {lines[0]}", 300)


def _format_of(path: Path, head: bytes) -> Format:
    """Return the format of a file that begins with these bytes.

    Raise for one that holds no model.
    """
    if not head:
        raise InputError(
            f"The model {path} is empty; expected the file of a fitted model: {FORMATS}."
        )
    if head.startswith((b"tree\n", b"tree\r\n")):
        return LIGHTGBM
    if head.startswith(b"CBM1"):
        return CATBOOST
    if head.lstrip().startswith(b"{") and re.search(rb'learner["{]', head[:64]):
        return XGBOOST
    if head.startswith(b"PK\x03\x04") and "schema.json" in _members(path):
        return SKOPS
    if re.match(rb"\x80[\x02-\x05]", head) or path.suffix.lower() in PICKLES:
        return PICKLE
    raise InputError(f"{path} is {_described(path, head)}; axil reads {FORMATS}. {_instead(head)}")


def _members(path: Path) -> list[str]:
    """Return the names in a zip file; none if it is damaged."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.namelist()
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError):
        return []


def _described(path: Path, head: bytes) -> str:
    """Return a description of a file that contains no model."""
    if path.suffix.lower() in (".csv", ".tsv", ".parquet"):
        return "a table of data by its name, not a model"
    return f"no model that axil knows: it begins with {head[:SHOWN]!r}"


def _instead(head: bytes) -> str:
    """Return advice for files that are models, but cannot be read back."""
    if b'"features_info"' in head or b'"boosting_params"' in head:
        return (
            f"This looks like CatBoost's JSON; write its binary form instead, with {CATBOOST.save}."
        )
    if re.match(rb'\s*\{\s*"name"\s*:\s*"tree"', head):
        return (
            "This looks like LightGBM's dump_model, which cannot be read back; "
            f"use {LIGHTGBM.save}."
        )
    if head.startswith(b"binf") or re.match(rb'\s*\[?\s*\{?\s*"nodeid"', head):
        return f"This looks like an older file or a dump of XGBoost; use {XGBOOST.save}."
    return "Save the model in one of these formats."


def _lightgbm(path: Path, trust: bool) -> ForeignModel:
    import lightgbm

    text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    if "\nend of trees" not in text:  # on a tree that is cut short LightGBM 4.7 ends the process
        raise ValueError("the end of its trees is missing")
    check(text)
    return lightgbm.Booster(model_file=str(path))


def _xgboost(path: Path, trust: bool) -> ForeignModel:
    """Return a Booster, or the scikit-learn class that wrote the file, up to the best iteration."""
    import xgboost

    booster = xgboost.Booster(model_file=str(path))
    content = path.read_bytes()
    if b"weight_drop" in content and b"weight_drop" not in booster.save_raw("json"):
        raise InputError(
            f"{path} has weights of dropped trees (weight_drop) that XGBoost "
            f"{xgboost.__version__}, installed here, leaves out without a word: the file was "
            f"written by XGBoost {_xgboost_version(content)}. Install that version, or another "
            "model would be explained."
        )
    kind = json.loads(booster.attr("scikit_learn") or "{}").get("_estimator_type")
    wrapper = {"regressor": xgboost.XGBRegressor, "classifier": xgboost.XGBClassifier}.get(kind)
    if wrapper is None:
        return booster
    model = wrapper()
    model.load_model(str(path))
    return model


def _xgboost_version(content: bytes) -> str:
    """Return the version that wrote a file, which only JSON states."""
    versions = re.findall(rb'"version"\s*:\s*\[([\d, ]+)\]', content)
    if not versions:
        return "3.4 or newer"
    return str(versions[-1].decode()).replace(" ", "").replace(",", ".")


def _catboost(path: Path, trust: bool) -> ForeignModel:
    import catboost

    return catboost.CatBoost().load_model(str(path))


def _skops(path: Path, trust: bool) -> ForeignModel:
    from skops.io import get_untrusted_types
    from skops.io import load as read

    unknown = get_untrusted_types(file=path)
    if unknown and not trust:
        raise InputError(
            f"{path} holds types that skops does not trust: {', '.join(unknown)}. "
            "If you know who made the file and expect these types in it, pass --trust."
        )
    if unknown:
        warnings.warn(
            f"--trust: {path} is read with {', '.join(unknown)}", UserWarning, stacklevel=2
        )
    return read(path, trusted=unknown)


def _pickle(path: Path, trust: bool) -> ForeignModel:
    if not trust:
        raise InputError(
            f"{path} is a pickle, and reading a pickle runs whatever code its author put into it. "
            "If you made the file yourself or trust who did, pass --trust. Safer: save the model "
            "in its library's own format, or scikit-learn's with skops.io.dump(model, "
            "'model.skops')."
        )
    import joblib

    return joblib.load(path)


def _save_model(model: ForeignModel, path: Path) -> None:
    model.save_model(str(path))


def _to_skops(model: ForeignModel, path: Path) -> None:
    from skops.io import dump

    dump(model, path)


def _to_pickle(model: ForeignModel, path: Path) -> None:
    import joblib

    joblib.dump(model, path)


LIGHTGBM = Format(
    name="a LightGBM model",
    extra="lightgbm",
    save="booster.save_model('model.txt')",
    read=_lightgbm,
    write=_save_model,
    endings=(".txt",),
)
XGBOOST = Format(
    name="an XGBoost model",
    extra="xgboost,scikit-learn",
    save="model.save_model('model.json')",
    read=_xgboost,
    write=_save_model,
    endings=(".json", ".ubj"),
)
CATBOOST = Format(
    name="a CatBoost model",
    extra="catboost",
    save="model.save_model('model.cbm')",
    read=_catboost,
    write=_save_model,
    endings=(".cbm",),
)
SKOPS = Format(
    name="a model saved by skops",
    extra="skops",
    save="skops.io.dump(model, 'model.skops')",
    read=_skops,
    write=_to_skops,
    endings=(".skops",),
)
PICKLE = Format(
    name="a pickle",
    extra="scikit-learn",
    save="joblib.dump(model, 'model.joblib')",
    read=_pickle,
    write=_to_pickle,
    endings=PICKLES,
)
