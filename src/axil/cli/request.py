"""One run of a command: the model and the rows that its options name, read when they are needed."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from axil import adapters, retraining
from axil.adapters import files
from axil.aliases import ForeignModel
from axil.arrays import AnyArray, FloatArray
from axil.cli.data import (
    FileRows,
    Note,
    Roles,
    class_names,
    feature_template,
    read_rows_like,
    read_training_rows,
    rows_of_explainer,
)
from axil.cli.options import (
    Method,
    given_parameters,
    input_files,
    parameters_of,
    refuse,
)
from axil.cli.output import AnswerText, Output
from axil.cli.rows import Label, NewTarget, new_targets, tested_column
from axil.errors import AxilError, InputError, counted, shown
from axil.explainer import Explainer, load
from axil.inputs import as_count
from axil.kernels.choose import limits_of
from axil.methods.kinds import in_memory_model
from axil.methods.method import verified_model
from axil.output.tables import NOTES
from axil.scale import FORWARD, INVERSES

if TYPE_CHECKING:
    import pandas as pd

    from axil.cli.commands import Command

# Options that name columns, which then need not be features
COLUMN_OPTIONS = (
    "group_by",
    "mean_by",
    "groups",
    "coefficients",
    "bounds",
    "sample_weight",
    "distinct",
    "columns",
    "within",
    "asof",
    "map",
    "search",
)


# Options on a fit that is replayed from files, which a saved explainer has itself
FIT_ARGUMENTS = (
    "train",
    "target",
    "weights",
    "inverse_func",
    "pos_label",
    "categorical",
    "scratch",
)


@dataclass(frozen=True)
class Subject:
    """A model with its verified explainer, its training rows and the columns that options name."""

    path: str  #: of the model
    adapter: adapters.Model
    explainer: Explainer
    roles: Roles
    training: FileRows
    forward: Callable[[FloatArray], FloatArray] | None = None  #: what undoes --inverse-func
    transforms_targets: bool = False  #: whether files hold targets in the units of the answers
    template: FileRows | None = None  #: rows whose columns other files need; by default training

    @property
    def by_position(self) -> Explainer:
        """Return the explainer with positions for row labels, which several rows may share."""
        explainer = copy(self.explainer)
        positions = np.arange(len(self.training.features))
        explainer._model = replace(in_memory_model(verified_model(explainer)), index=positions)
        return explainer

    def read_rows(self, path: str, with_target: bool = False) -> FileRows:
        """Read rows of another file as the model takes them."""
        if self.template is None:
            template = self.training
        else:
            template = self.template
        rows = read_rows_like(template, path, self.roles, self.adapter, with_target)
        if with_target and self.transforms_targets and self.forward is not None:
            return rows.transformed(self.forward)
        return rows

    def new_targets(self, texts: list[str]) -> dict[Label, NewTarget]:
        """Return new targets by row label, from texts such as 12=80."""
        return new_targets(self.training, texts, self.adapter.classes, self.forward)

    @property
    def verification(self) -> str:
        """Return the model's kind and how well the replay agreed."""
        n_rows = counted(len(self.training.features), "training row")
        text = f"{self.path}: {self.adapter.library}, {n_rows} of {self.training.path}"
        verification = self.explainer.verification
        if verification is None:
            return text
        if "sum_error" in verification.details:
            error = verification.details["sum_error"]
            return f"{text}; contributions add up to the scores within {error:.0e} of the largest"
        text += f"; replayed predictions agree to {verification.max_error:.0e} of the largest"
        if verification.active_set is not None:
            text += f"\nfixed besides the splits: {verification.active_set}"
        return text

    @property
    def note(self) -> str:
        """Return the meaning of the numbers."""
        return _sentence(NOTES[self.explainer.kind])

    def answer_text(
        self, title: str = "", table: pd.DataFrame | None = None, **settings: Any
    ) -> AnswerText:
        """Return the lines around an answer; a table may have its own note on its numbers."""
        note = self.note
        if table is not None and "axil" in table.attrs:
            note = _sentence(table.attrs["axil"])
        return AnswerText(self.verification, title, note, **settings)


@dataclass(frozen=True)
class Request:
    """A command with its options. Reading a model takes time, so properties do it when needed."""

    command: Command
    arguments: argparse.Namespace
    stream: TextIO  #: standard output

    @cached_property
    def output(self) -> Output:
        """Return the output of the answer; raise if it cannot be written there."""
        arguments = self.arguments
        if getattr(arguments, "top", None) is not None:
            as_count(arguments.top, "--top")
        if not self.command.has_table:
            return Output(self.stream, quiet=arguments.quiet)
        page = self.command.page
        output = Output.of(arguments, self.stream, has_page=page is not None)
        if page is not None and not output.page_path:
            self._refuse_page_options(page)
        return output

    def _refuse_page_options(self, page: Method) -> None:
        for parameter in parameters_of(page, self.command.page_skips):
            value = getattr(self.arguments, parameter.attribute)
            is_for_table = parameter.name == "k" and self.command.table_has_top
            if value and not is_for_table:
                refuse(
                    f"--{parameter.option}",
                    value,
                    "it is of a page, and none is written",
                    "Give --out FILE.html, or leave it out.",
                )

    @cached_property
    def page_options(self) -> dict[str, Any]:
        """Return the settings of the page."""
        if self.command.page is None:
            return {}
        return given_parameters(self, self.command.page, self.command.page_skips)

    @cached_property
    def subject(self) -> Subject:
        """Return the model, verified on its training data or on those of a saved explainer."""
        if not self.command.takes_explainer:
            return read_subject(self.arguments)
        if self.arguments.explainer is not None:
            if self.command.has_table and self.output.page_path:
                raise InputError(
                    "A page shows the features of the training rows, which a saved explainer does "
                    "not keep. Give --train and --target in place of --explainer."
                )
            return read_saved_subject(self.arguments)
        if self.arguments.train is None or self.arguments.target is None:
            raise InputError("Give --train and --target, or --explainer.")
        return read_subject(self.arguments)

    @cached_property
    def rows(self) -> FileRows:
        """Return the rows of --query, with targets if --actual is set."""
        with_target = getattr(self.arguments, "actual", False)
        return self.subject.read_rows(self.arguments.query, with_target)

    def training_column(self, name: str, option: str) -> AnyArray:
        """Return a column of the training data."""
        values: AnyArray = self.subject.training.column(name, option).to_numpy()
        return values

    def parameters(self, method: Method, skipped: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the parameters that options set, as the method takes them."""
        return given_parameters(self, method, skipped)

    def input_rows(self, method: Method) -> dict[str, FileRows]:
        """Read the files "query" and "validation" that the user passes and the method uses."""
        rows_by_name = {}
        for name in input_files(method):
            path = getattr(self.arguments, name)
            if path is not None:
                rows = self.subject.read_rows(path, with_target=name == "validation")
                rows_by_name[name] = rows
        return rows_by_name

    def stability(self, **settings: Any) -> retraining.Stability:
        """Refit the model in the file, which must hold its settings."""
        subject = self.subject
        training = subject.training
        if not files.has_settings(subject.path):
            raise InputError(
                f"{subject.path} has the trees of a model, and not the settings that a new fit "
                "would need. For stability give the estimator itself, as a .skops or .joblib file."
            )
        if training.offset is not None:
            raise InputError(
                "Refits take no offsets. Leave stability out, or fit the model without --offset."
            )
        assert training.target is not None  # a model was verified with them
        return retraining.stability(
            subject.explainer.model,
            training.features,
            training.target,
            self.rows.features,
            sample_weight=training.weights,
            **settings,
        )


def read_subject(arguments: argparse.Namespace) -> Subject:
    """Read a model and verify it on its training data."""
    # Mistakes in these are reported before files are read.
    limits_of(arguments.threads, arguments.memory_limit, arguments.scratch, arguments.device)
    model = files.load(arguments.model, arguments.trust)
    with files.usable(arguments.model):
        adapter, is_additive = _read_adapter(model)
    if is_additive:
        refuse(
            "--inverse-func",
            arguments.inverse_func,
            "it leads from sums of targets to prices, and this model has contributions that add up "
            "to a "
            "score",
        )
    roles = _roles(arguments)
    training = read_training_rows(arguments.train, roles, adapter)
    names = class_names(training, adapter)
    if names is not None:
        _warn_of_class_numbers(names)
        model.classes_ = np.array(names, dtype=object)  # as an estimator has them
        adapter, _ = _read_adapter(model)
    inverse = INVERSES.get(arguments.inverse_func)
    forward = FORWARD.get(arguments.inverse_func)

    def verified(rows: FileRows, transforms_targets: bool) -> Subject:
        target: Any = rows.target  # Explainer refuses None by name
        explainer = Explainer(
            model,
            rows.features,
            target,
            sample_weight=rows.weights,
            inverse_func=inverse,
            pos_label=_pos_label(arguments.pos_label, adapter),
            init_score=rows.init_score,
            n_threads=arguments.threads,
            memory_limit=arguments.memory_limit,
            device=arguments.device,
            scratch=None if is_additive else arguments.scratch,
        )
        return Subject(
            arguments.model, adapter, explainer, roles, rows, forward, transforms_targets
        )

    with files.usable(arguments.model, arguments.train):
        try:
            return verified(training, transforms_targets=False)
        except AxilError:
            if forward is None:
                raise
            # Targets may be in the units of the answers, such as prices of a model of logarithms.
            subject = None
            with suppress(AxilError):
                subject = verified(training.transformed(forward), transforms_targets=True)
            if subject is None:
                raise
    warnings.warn(
        f"column {arguments.target} of {training.path} is in the units of the answers; its "
        f"{forward.__name__} was taken",
        Note,
        stacklevel=2,
    )
    return subject


def read_saved_subject(arguments: argparse.Namespace) -> Subject:
    """Read a model and the explainer that was saved for it, and verify it on the saved arrays."""
    for name in FIT_ARGUMENTS:
        refuse(
            f"--{name.replace('_', '-')}",
            getattr(arguments, name),
            "--explainer has all that the fit had",
        )
    model = files.load(arguments.model, arguments.trust)
    with files.usable(arguments.model):
        adapter, _ = _read_adapter(model)
    roles = _roles(arguments)
    template = feature_template(arguments.explainer, roles, adapter)
    explainer = load(
        arguments.explainer,
        model,
        n_threads=arguments.threads,
        memory_limit=arguments.memory_limit,
        device=arguments.device,
    )
    training = rows_of_explainer(arguments.explainer, explainer.index)
    return Subject(arguments.model, adapter, explainer, roles, training, template=template)


def _read_adapter(model: ForeignModel) -> tuple[adapters.Model, bool]:
    """Return the adapter of a model, and whether its score is a sum of contributions."""
    reading = adapters.examine(model)
    if reading.adapter is None:
        raise reading.not_exact or adapters.unread(model)
    return reading.adapter, reading.kind is adapters.Kind.ADDITIVE


def _pos_label(name: str | None, adapter: adapters.Model) -> Any:
    """Return the model's class with this name, or the name, which `Explainer` then refuses."""
    if adapter.classes is None:
        classes = list(range(getattr(adapter, "numbered_classes", 0)))
    else:
        classes = adapter.classes.tolist()
    return next((label for label in classes if str(label) == name), name)


def _warn_of_class_numbers(names: list[str]) -> None:
    """Warn which class each number in the model's file means."""
    numbered = ", ".join(f"{number} is {shown(name)}" for number, name in enumerate(names))
    message = f"the model's file has numbers of classes alone: {numbered}"
    warnings.warn(message, Note, stacklevel=3)


def _roles(arguments: argparse.Namespace) -> Roles:
    """Return the roles of the columns."""
    other_columns: list[str] = []
    for option in COLUMN_OPTIONS:
        texts = getattr(arguments, option, None)
        if isinstance(texts, str):
            texts = [texts]
        for text in texts or []:
            other_columns += [text, *(word.strip() for word in text.split(","))]
    return Roles(
        target=arguments.target,
        index=arguments.index,
        weights=arguments.weights,
        features=arguments.features,
        categorical=arguments.categorical,
        marks=tested_column(getattr(arguments, "where", None)),
        out_of_fold=getattr(arguments, "out_of_fold", None),
        offset=arguments.offset,
        other_columns=tuple(other_columns),
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
