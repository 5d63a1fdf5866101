"""The trace-normalised semidefinite programme."""

from __future__ import annotations

from isometry.spectral.fisher import FisherML
from isometry.spectral.parametric_mds import ParametricMDS


def TraceSDP(n_components="auto", *, reg="auto", solver="eigen", target_distances=False) -> FisherML | ParametricMDS:
    """Trace-normalised semidefinite programme, in closed form: FisherML(constraint="trace").

    min_W tr(W(M_S − M_D))  subject to  W ⪰ 0, tr W = 1  (p > 1: also W ⪯ I/p)

    With ``target_distances`` the second form of side information in the paper, a distance e_ij that pairs should
    have: ``min_{W ⪰ 0} mean (|x_i − x_j|²_W − e_ij²)²``, which is `ParametricMDS` with loss="sstress". Fit it to
    ``Pairs(i, j, target=e, n=n)``.

    Parameters
    ----------
    n_components : int, None or "auto", default="auto"
        Dimension p of the map, as in `FisherML`.
    reg : "auto" or float ≥ 0, default="auto"
        As in `FisherML`, where the ridge acts on constraint="scatter" only: with "auto" the data choose how much of the
        metric is mixed with the Euclidean one.
    solver : {"eigen", "sdp"}, default="eigen"
        As in `FisherML`: "eigen", or "sdp", the programme itself by cvxpy.
    target_distances : bool, default=False
        Whether to learn from distances that pairs should have.

    Returns
    -------
    FisherML or ParametricMDS
        The learner, not fitted yet.

    Notes
    -----
    What other libraries give to a solver of semidefinite programmes, without one. The criterion is a difference of
    variances, so that loud features decide: standardise them, or use `FisherML` with its own constraint, which does
    not depend on units.

    A fit costs O(n d² + d³).

    References
    ----------
    | A. Ghodsi, D. Wilkinson, F. Southey, "Improving embeddings by flexible exploitation of side information", IJCAI
      2007.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import TraceSDP
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = TraceSDP(2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    >>> type(TraceSDP(target_distances=True)).__name__
    'ParametricMDS'
    """
    if target_distances:
        return ParametricMDS(None if isinstance(n_components, str) else n_components, loss="sstress")
    return FisherML(n_components, constraint="trace", reg=reg, solver=solver)
