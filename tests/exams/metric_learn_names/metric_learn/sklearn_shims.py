"""What metric-learn's tests take from scikit-learn."""

from sklearn.metrics import get_scorer
from sklearn.utils._testing import _get_args, assert_allclose_dense_sparse, ignore_warnings, set_random_state
from sklearn.utils.estimator_checks import _is_public_parameter as is_public_parameter

SKLEARN_AT_LEAST_0_22 = True

__all__ = [
    "SKLEARN_AT_LEAST_0_22",
    "_get_args",
    "assert_allclose_dense_sparse",
    "get_scorer",
    "ignore_warnings",
    "is_public_parameter",
    "set_random_state",
]
