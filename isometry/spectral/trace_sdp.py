"""The trace-normalised semidefinite programme."""

from __future__ import annotations

from isometry.spectral.fisher import FisherML
from isometry.spectral.parametric_mds import ParametricMDS


def TraceSDP(n_components="auto", *, reg="auto", solver="eigen", target_distances=False) -> FisherML | ParametricMDS:
    """Trace-normalised semidefinite programme, in closed form: FisherML(constraint="trace").

    min_W tr(W(M_S − M_D))  subject to  W ⪰ 0, tr W = 1  (p > 1: also W ⪯ I/p)

    With ``target_distances`` the second form of side information in the paper, a distance e_ij that pairs should have:
    min_{W ⪰ 0} mean (|x_i − x_j|²_W − e_ij²)², which is `ParametricMDS` with loss="sstress". Fit it to
    ``Pairs(i, j, target=e, n=n)``.

    Parameters
    ----------
    n_components : int, None or "auto"
        Dimension p, as in `FisherML`.
    reg : float or "auto"
        As in `FisherML`.
    solver : {"eigen", "sdp"}
        As in `FisherML`.
    target_distances : bool
        Learn from distances that pairs should have.

    References
    ----------
    A. Ghodsi, D. Wilkinson, F. Southey, "Improving embeddings by flexible exploitation of side information", IJCAI
    2007.
    """
    if target_distances:
        return ParametricMDS(None if isinstance(n_components, str) else n_components, loss="sstress", strength=1.0)
    return FisherML(n_components, constraint="trace", reg=reg, solver=solver)
