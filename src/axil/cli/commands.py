"""The commands on files: read the model and its data, ask, print the answer."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from axil import adapters
from axil.adapters import files, smooth
from axil.cli import answers, data, screen
from axil.cli.written import print_table, write_csv
from axil.entry import explain as explained
from axil.errors import InputError, UnsupportedModelError
from axil.explainer import Explainer, limits_of
from axil.inputs import as_count, as_file
from axil.intervals.errors import is_bagged
from axil.intervals.predictive import Predictive
from axil.jacobian import JacobianExplainer
from axil.output.tables import NOTES
from axil.scale import INVERSES
from axil.support import supports

MOST_ON_SCREEN = 20  # predictions; --csv and --format have them all
VERDICTS = {
    "exact": "exact weights",
    "additive": "no exact weights, but pushes that add up to the score",
    "jacobian": "no exact weights, but derivatives",
    "no": "no exact weights",
}
PROVEN = {"exact": "exact weights", "additive": "pushes that add up to the score"}


@dataclass(frozen=True)
class Question:
    """A model with its proven explainer, its training rows and the columns that the user named."""

    name: str
    adapter: adapters.Model
    explainer: Explainer | JacobianExplainer
    roles: data.Roles
    training: data.Rows

    def rows(self, path: str, with_target: bool = False) -> data.Rows:
        """Rows to ask about, as the model takes them."""
        return data.rows_like(self.training, path, self.roles, self.adapter, with_target)

    @property
    def sentence(self) -> str:
        """What the numbers are."""
        note = NOTES[self.explainer.kind]
        return f"{note[0].upper()}{note[1:]}."

    @property
    def proof(self) -> str:
        """The model's kind and how well the replay agreed."""
        rows = f"{len(self.training.features)} training rows of {self.training.path}"
        found = self.explainer.verification
        if isinstance(found, dict):
            error = f"; pushes add up to {found['sum_error']:.0e} of the largest score"
            return f"{self.name}: {self.adapter.library}, {rows}{error}"
        error = "" if found is None else f"; replayed predictions agree to {found.max_error:.0e} of the largest"
        held = "" if found is None or found.held is None else f"\nheld fixed besides the splits: {found.held}"
        return f"{self.name}: {self.adapter.library}, {rows}{error}{held}"


def explain(arguments: argparse.Namespace, out: Any) -> int:
    """The training rows of largest weight in each prediction."""
    _check_answer(arguments)
    question = question_of(arguments)
    queries = question.rows(arguments.query).features
    everything = arguments.csv or arguments.html or arguments.format != "table"
    asked = queries if everything else queries.iloc[:MOST_ON_SCREEN]
    if arguments.html is not None:
        question.explainer.to_html(asked, arguments.html)
    explanations, features = question.explainer.iter(asked), question.training.features
    table, shown = answers.comparables(explanations, features, queries, arguments.top, arguments.by, MOST_ON_SCREEN)
    if arguments.csv is not None:
        write_csv(table, arguments.csv)
    if arguments.format != "table":
        print_table(table, arguments.format, out)
        return 0
    show(question, shown, queries, out)
    return 0


def show(question: Question, shown: list[answers.Answer], queries: Any, out: Any) -> None:
    """Print answers, and how many there are that have no place on the screen."""
    print(screen.visible(question.proof), file=out)
    for answer in shown:
        print("\n" + "\n".join(answer.lines(question.training.features, queries)), file=out)
    left = len(queries) - MOST_ON_SCREEN
    if left > 0:
        print(f"\n{left} more predictions: --csv FILE or --format csv has them all.", file=out)
    print(f"\n{question.sentence}", file=out)


def check(arguments: argparse.Namespace, out: Any) -> int:
    """Whether a model can be explained, and whether it was fitted on this data."""
    if (arguments.train is None) != (arguments.target is None):
        given, lacking = ("--train", "--target") if arguments.target is None else ("--target", "--train")
        raise InputError(f"{given} was given without {lacking}; give both to replay the fit, or neither.")
    if arguments.train is None:
        model, _ = _model(arguments)
        known = supports(model)
        print(f"{arguments.model}: {VERDICTS[known.kind]}\n{known.reason}", file=out)
        return 0 if known.exact else 1
    question = question_of(arguments)
    explainer = question.explainer
    print(
        f"{arguments.model}: {PROVEN[explainer.kind]}, proven on {arguments.train}\n{explainer.verification}", file=out
    )
    return 0


def blame(arguments: argparse.Namespace, out: Any) -> int:
    """The training rows whose target, once corrected, would lower the validation error most."""
    _check_answer(arguments)
    question = question_of(arguments)
    validation = question.rows(arguments.validation, with_target=True)
    table = question.explainer.blame(validation.features, validation.target)
    about = f"{len(validation.features)} validation rows of {arguments.validation}; the largest gain first"
    return _show_rows(arguments, question, table, about, question.sentence, out)


def audit(arguments: argparse.Namespace, out: Any) -> int:
    """The training rows whose label looks wrong, by what the other rows say."""
    _check_answer(arguments)
    question = question_of(arguments)
    given = question.training.out_of_fold
    if arguments.validation is None:
        table = question.explainer.audit(given)
    elif isinstance(question.explainer, JacobianExplainer):
        raise InputError("--validation needs a model with exact weights; this one has pushes. Leave it out.")
    else:
        validation = question.rows(arguments.validation, with_target=True)
        table = question.explainer.audit(given, validation.features, validation.target)
    note = str(table.attrs["axil"])
    suspects = f"{int(table['suspect'].sum())} of {len(table)} labels look wrong; the most suspicious first"
    return _show_rows(arguments, question, table, suspects, f"{note[0].upper()}{note[1:]}.", out)


def _show_rows(arguments: argparse.Namespace, question: Question, table: Any, about: str, note: str, out: Any) -> int:
    """Print the first lines of a table about training rows with their features, and write all of it where asked to."""
    features = question.training.features
    if arguments.csv is not None:
        write_csv(answers.with_features(table, features), arguments.csv)
    shown = table.head(arguments.top)
    if arguments.format != "table":
        print_table(answers.with_features(shown, features), arguments.format, out)
        return 0
    columns = [screen.column(name, shown[name].to_numpy(), answers.is_signed(name)) for name in shown.columns]
    columns += answers.features(answers.rows_of(shown, features))
    print(screen.visible(question.proof), file=out)
    print(f"{about}\n", file=out)
    print("\n".join([*screen.fitted(columns), "", note]), file=out)
    return 0


def remove(arguments: argparse.Namespace, out: Any) -> int:
    """Predictions with all training rows and without those named."""
    _check_answer(arguments)
    question = question_of(arguments)
    training, queries = question.training, question.rows(arguments.query).features
    if arguments.rows is None:
        rows = list(training.features.index[training.marks.to_numpy()])
        if not rows:
            raise InputError(
                f"Column {arguments.where} of {training.path} (--where) marks no row; there is nothing to delete."
            )
    else:
        rows = data.labelled_rows(training, arguments.rows, "--rows")
    explainer: Any = question.explainer  # one that cannot answer refuses, by name
    table = explainer.without(queries, rows)
    title = f"{len(queries)} predictions without {len(rows)} of {len(training.features)} training rows"
    return _give(question, table, title, arguments, out)


def intervals(arguments: argparse.Namespace, out: Any) -> int:
    """Prediction intervals, calibrated with rows held out, out-of-fold predictions, or out of bag."""
    _check_answer(arguments)
    question = question_of(arguments)
    predictive = calibrated(question, arguments)
    queries = question.rows(arguments.query).features
    if arguments.html is not None:
        predictive.to_html(queries, arguments.html, arguments.coverage, symmetric=not arguments.skewed)
    table = predictive.interval(queries, arguments.coverage, not arguments.skewed)
    title = (
        f"{100 * arguments.coverage:.6g} % intervals of {len(queries)} predictions; "
        f"{predictive.n_calibration} calibration rows, {predictive.source}"
    )
    return _give(question, table, title, arguments, out)


def calibrated(question: Question, arguments: argparse.Namespace) -> Predictive:
    """How sure the model's predictions are, from what the user gives."""
    explainer: Any = question.explainer  # one that cannot answer refuses, by name
    given: dict[str, Any] = {"out_of_fold": question.training.out_of_fold}
    if arguments.calibration is not None:
        held = question.rows(arguments.calibration, with_target=True)
        given |= {"X_cal": held.features, "y_cal": held.target}
    elif arguments.out_of_fold is None and isinstance(explainer, Explainer) and not is_bagged(explainer.proven):
        raise InputError(
            "There is nothing to calibrate with, as this model is no forest whose trees leave rows out. Give rows that it was "
            "not fitted on with --calibration, or a column of out-of-fold predictions with --out-of-fold."
        )
    made: Predictive = explainer.calibrate(**given)
    return made


def _give(question: Question, table: Any, title: str, arguments: argparse.Namespace, out: Any) -> int:
    """A table about queries, to where the user wants it; the screen shows its first lines and its note."""
    if arguments.csv is not None:
        write_csv(table, arguments.csv)
    if arguments.format != "table":
        print_table(table, arguments.format, out)
        return 0
    note, shown = table.attrs["axil"], table.head(MOST_ON_SCREEN)
    columns = [screen.column(name, shown[name].to_numpy(), answers.is_signed(name)) for name in shown.columns]
    print(screen.visible(question.proof), file=out)
    print(f"{title}\n", file=out)
    print("\n".join(screen.fitted(columns)), file=out)
    left = len(table) - MOST_ON_SCREEN
    if left > 0:
        print(f"\n{left} more lines: --csv FILE or --format csv has them all.", file=out)
    print(f"\n{note[0].upper()}{note[1:]}.", file=out)
    return 0


def _model(arguments: argparse.Namespace) -> tuple[Any, adapters.Model | None]:
    """The model in a file and its adapter, None where it is refused."""
    model = files.load(arguments.model, arguments.trust)
    with files.usable(arguments.model):
        try:
            return model, adapters.read(model)
        except UnsupportedModelError:
            return model, None


def _pushed(model: Any) -> Any:
    """The adapter of a model whose score adds up from pushes; None where it is refused altogether."""
    try:
        return smooth.find(model)
    except UnsupportedModelError:
        return None


def question_of(arguments: argparse.Namespace) -> Question:
    """The model of the command line, proven on its training data."""
    # What is wrong with these is said before files are read.
    limits_of(arguments.threads, arguments.memory_limit, arguments.scratch, arguments.device)
    model, adapter = _model(arguments)
    pushed = None if adapter is not None else _pushed(model)
    if adapter is None:
        adapter = adapters.read(model) if pushed is None else pushed
    named = arguments.index, arguments.weights, arguments.features, arguments.categorical
    more = {"marks": getattr(arguments, "where", None), "out_of_fold": getattr(arguments, "out_of_fold", None)}
    roles = data.Roles(arguments.target, *named, **more)
    training = data.training_rows(arguments.train, roles, adapter)
    settings = {"n_threads": arguments.threads, "memory_limit": arguments.memory_limit, "scratch": arguments.scratch}
    inverse = None if arguments.inverse_func is None else INVERSES[arguments.inverse_func]
    with files.usable(arguments.model, arguments.train):
        if pushed is not None:
            given = model, training.features, training.target, training.weights
            limits: dict[str, Any] = {"n_threads": arguments.threads, "memory_limit": arguments.memory_limit}
            return Question(arguments.model, adapter, explained(*given, **limits), roles, training)
        given = model, training.features, training.target, training.weights
        explainer = Explainer(*given, inverse_func=inverse, device=arguments.device, **settings)
    return Question(arguments.model, adapter, explainer, roles, training)


def _check_answer(arguments: argparse.Namespace) -> None:
    """Raise for a destination that the answer cannot go to, before any work."""
    if hasattr(arguments, "top"):
        as_count(arguments.top, "--top")
    for option in ("csv", "html"):
        if getattr(arguments, option, None) is not None:
            as_file(getattr(arguments, option), f"--{option}")
