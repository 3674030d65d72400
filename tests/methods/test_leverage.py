"""Standard errors and degrees of freedom, against the weights and the textbook."""

import numpy as np
import pytest

from axil import InputError
from axil.methods.method import verified_model
from tests.contract_models import case_of, explainer_of, offsets_of
from tests.methods.method_models import MODELS, full_tree


@pytest.mark.parametrize(
    ("library", "name"), [MODELS[0], MODELS[1], MODELS[3], MODELS[4], MODELS[9]]
)
def test_noise_is_estimated_from_the_residuals(library, name):
    case, explainer = case_of(library, name), explainer_of(library, name)
    K = explainer.jacobian.matrix()
    K = np.swapaxes(K, 0, 1) if K.ndim == 3 else [K] * verified_model(explainer).targets.shape[1]
    fitted = explainer(case.X, init_score=offsets_of(case)).predictions.reshape(
        verified_model(explainer).targets.shape
    )
    left = [np.eye(len(own)) - own for own in K]
    rss = np.square(verified_model(explainer).targets - fitted).sum(axis=0)
    sigma = np.sqrt(rss / [np.trace(one.T @ one) for one in left])
    np.testing.assert_allclose(
        explainer.diagnostics.standard_error(case.X_new),
        explainer.diagnostics.standard_error(case.X_new, sigma),
        rtol=1e-9,
    )


def test_standard_errors_of_linear_regression_are_the_textbooks():
    case, explainer = (
        case_of("smoother", "linear regression"),
        explainer_of("smoother", "linear regression"),
    )
    A, B = (np.hstack([np.ones((len(X), 1)), X]) for X in (case.X, case.X_new))
    residuals = case.y - case.model.predict(case.X)
    sigma = np.sqrt(residuals @ residuals / (len(A) - A.shape[1]))
    expected = sigma * np.sqrt(np.einsum("ij,jk,ik->i", B, np.linalg.inv(A.T @ A), B))
    np.testing.assert_allclose(
        explainer.diagnostics.standard_error(case.X_new), expected, rtol=1e-9
    )
    assert explainer.diagnostics.degrees_of_freedom() == pytest.approx(A.shape[1])


def test_noise_that_cannot_be_told_is_refused():
    with pytest.raises(InputError, match="degrees of freedom"):
        full_tree().diagnostics.standard_error(np.ones((1, 1)))
    np.testing.assert_allclose(full_tree().diagnostics.standard_error(np.ones((1, 1)), 2.0), 2.0)
    classifier, case = explainer_of(*MODELS[8]), case_of(*MODELS[8])
    with pytest.raises(InputError, match="class labels"):
        classifier.diagnostics.standard_error(case.X_new)
    for bad in (-1.0, np.nan, "much", [1.0, 2.0, 3.0, 4.0, 5.0]):
        with pytest.raises(InputError, match="sigma is"):
            full_tree().diagnostics.standard_error(np.ones((1, 1)), bad)
