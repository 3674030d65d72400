"""sigma and trace K by random vectors, against the exact ones; and what is said about cost."""

import warnings

import numpy as np
import pytest

import axil
from axil.errors import InputError
from axil.methods import leverage, noise
from axil.methods.method import verified_model
from tests.contract_models import case_of, explainer_of
from tests.output.page.page_models import data_of

MODELS = [
    ("lightgbm", "bagging"),
    ("xgboost", "one_output_per_tree"),
    ("catboost", "multi weighted"),
    ("sklearn", "RandomForestRegressor weighted"),
    ("smoother", "ridge two outputs"),
    ("smoother", "neighbours"),
]


def traces(explainer):
    """trace K and trace((I - K)'(I - K)), of every engine, from K itself."""
    every = explainer.jacobian.matrix()
    every = np.swapaxes(every, 0, 1) if every.ndim == 3 else every[None]
    left = [np.eye(len(K)) - K for K in every]
    return np.array([np.trace(K) for K in every]), np.array([np.square(one).sum() for one in left])


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_estimates_are_as_near_as_they_say(library, name):
    """Within four standard errors, which are themselves from 32 vectors; and of use: sigma to a tenth."""
    explainer = explainer_of(library, name)
    trace, left = traces(explainer)
    found = noise.estimated_trace(verified_model(explainer))
    assert (np.abs(found.value - trace) <= 4 * found.standard_error + 1e-9 * trace).all()
    value, error = explainer.diagnostics.degrees_of_freedom(method="estimate")
    np.testing.assert_array_equal(np.atleast_1d(value), found.value)
    np.testing.assert_array_equal(np.atleast_1d(error), found.standard_error)
    sigma, exact = (
        noise.estimated(verified_model(explainer)),
        noise.exact(verified_model(explainer)),
    )
    assert (np.abs(sigma.value - exact) <= 4 * sigma.standard_error + 1e-9 * exact).all()
    assert (sigma.standard_error <= 0.1 * sigma.value).all()
    rss = np.square(verified_model(explainer).targets - verified_model(explainer).fitted()).sum(
        axis=0
    )
    np.testing.assert_allclose(exact, np.sqrt(rss / left), rtol=1e-9)


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_estimated_leverages_are_as_near_as_they_say(library, name):
    """Two standard errors, from 32 vectors, hold 94 % of normal errors; rows are not independent, so nine tenths or more."""
    explainer = explainer_of(library, name)
    exact, (value, error) = (
        explainer.diagnostics.leverage(),
        explainer.diagnostics.leverage(method="estimate"),
    )
    assert value.shape == error.shape == exact.shape
    np.testing.assert_array_equal(explainer.diagnostics.leverage(method="exact"), exact)
    off = np.abs(value - exact)
    assert (off <= 2 * error + 1e-9).mean() >= 0.9
    assert (off <= 6 * error + 1e-9).all()


def test_repeated_estimates_of_leverages_have_no_bias_and_scatter_as_they_say(monkeypatch):
    """Over 40 sets of signs: the mean within the scatter of means, the mean standard error within a tenth of the scatter."""
    explainer, found, plain = axil.Explainer(*_data()), [], []
    engine, n = verified_model(explainer).engines[0], len(verified_model(explainer).targets)
    real = np.random.default_rng
    for seed in range(40):
        monkeypatch.setattr(np.random, "default_rng", lambda _, seed=seed: real(seed))
        found.append(leverage._of_engine(engine, n))
        with monkeypatch.context() as without:
            without.setattr(type(engine), "approximate_matvec", lambda self, v: None)
            plain.append(leverage._of_engine(engine, n)[1])
    values, errors = np.array(found).swapaxes(0, 1)
    off = (values - explainer.diagnostics.leverage()) / errors
    assert abs(off.mean()) < 0.1  # 40 means of some hundred rows each: 0.02 or so
    assert np.sqrt(np.square(errors).mean()) == pytest.approx(
        values.std(axis=0, ddof=1).mean(), rel=0.1
    )
    assert (np.abs(off) <= 2).mean() == pytest.approx(0.945, abs=0.02)  # of a t of 31 degrees
    assert np.square(errors).mean() < 0.6 * np.square(plain).mean()  # what the likeness is for


def test_a_method_is_exact_or_an_estimate():
    explainer = axil.Explainer(*_data())
    assert (
        explainer.diagnostics.degrees_of_freedom(method="exact")
        == explainer.diagnostics.degrees_of_freedom()
    )
    with pytest.raises(InputError, match='"exact" or "estimate"'):
        explainer.diagnostics.degrees_of_freedom(method="guess")
    with pytest.raises(InputError, match='"exact" or "estimate"'):
        explainer.diagnostics.leverage(method="guess")


def test_standard_errors_of_repeated_estimates_are_their_scatter(monkeypatch):
    """Over 40 sets of signs the estimates scatter as they say: within a third, as sizes of 40 numbers are known to a tenth."""
    explainer = axil.Explainer(*_data())
    found = []
    real = np.random.default_rng
    for seed in range(40):
        monkeypatch.setattr(np.random, "default_rng", lambda _, seed=seed: real(seed))
        found.append(noise._probe(verified_model(explainer))[1])
    scatter, said = (
        np.std([one.value for one in found]),
        np.mean([one.standard_error for one in found]),
    )
    assert said == pytest.approx(scatter, rel=0.35)


def test_what_takes_too_long_is_estimated_and_says_so(monkeypatch):
    explainer = axil.Explainer(*_data())
    X = case_of("lightgbm", "regressor").X_new
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact = explainer.diagnostics.standard_error(X)
        by_name = explainer.diagnostics.standard_error(X, sigma="estimate")
        np.testing.assert_array_equal(explainer.diagnostics.standard_error(X, sigma="exact"), exact)
        monkeypatch.setattr(noise, "PATIENCE", 0.0)
        np.testing.assert_array_equal(explainer.diagnostics.standard_error(X, sigma="exact"), exact)
    with pytest.warns(
        axil.ApproximationWarning,
        match=r"within .* %.*exactly it would take some .*sigma=\"exact\"",
    ):
        found = explainer.diagnostics.standard_error(X)
    np.testing.assert_array_equal(found, by_name)
    assert not np.array_equal(found, exact)
    with pytest.raises(axil.InputError, match="sigma is 'much'"):
        explainer.diagnostics.standard_error(X, sigma="much")


def test_a_page_never_waits_for_a_number_nobody_asked_for(monkeypatch):
    """sigma is on it where it is cheap, asked for or known by then; the tile is left out elsewhere."""
    X = case_of("lightgbm", "regressor").X_new[:3]

    def page(explainer, **options):
        found = data_of(explainer.to_html(X, **options))
        return found["standard_errors"], found["about_sigma"]

    explainer = axil.Explainer(*_data())
    cheap = page(explainer)
    assert cheap[1] is None
    assert page(explainer, sigma="exact") == page(explainer, sigma=True) == cheap
    assert page(explainer, sigma=False) == (None, None)
    explainer = axil.Explainer(*_data())
    monkeypatch.setattr(noise, "exact_seconds", lambda asked: 100.0)
    estimate, note = page(explainer)
    assert note.startswith("sigma is estimated, within")
    assert estimate == page(explainer, sigma="estimate")[0] != cheap[0]
    explainer = axil.Explainer(*_data())
    monkeypatch.setattr(noise, "ON_PAGE", 0.0)
    assert page(explainer) == (None, None)
    assert not {"sigma", "probes"} & set(
        verified_model(explainer).kept.known()
    )  # nothing was computed
    assert page(explainer, sigma=True) == (estimate, note)
    assert page(explainer) == (estimate, note)  # known by now
    page(explainer, sigma="exact")
    assert page(explainer) == cheap


def test_long_work_is_announced_before_it_begins(monkeypatch):
    monkeypatch.setattr(noise, "WARNED", 0.0)
    explainer = axil.Explainer(*_data())
    with pytest.warns(axil.CostWarning, match="leverages of .* take some .* seconds") as said:
        explainer.diagnostics.leverage()
    assert said[0].filename == __file__
    with pytest.warns(axil.CostWarning, match="squared weights"):
        explainer.diagnostics.standard_error(case_of("lightgbm", "regressor").X_new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explainer.diagnostics.degrees_of_freedom()  # known by now


def _data():
    case = case_of("lightgbm", "regressor")
    return case.model, case.X, case.y
