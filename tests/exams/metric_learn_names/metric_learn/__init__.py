"""The names of metric-learn 0.7 over our learners, so that its own tests can be run: nothing is learned here."""

from __future__ import annotations

from typing import Any

import isometry as ours
from isometry.parameters import parameters
from metric_learn.base_metric import (
    MahalanobisMixin,
    _PairsClassifierMixin,
    _QuadrupletsClassifierMixin,
    _TripletsClassifierMixin,
)
from metric_learn.constraints import Constraints

__all__ = ["Constraints"]


@parameters
class Covariance(MahalanobisMixin):
    preprocessor: Any = None

    def _learner(self) -> Any:
        return ours.Covariance(reg=0.0)


@parameters
class LMNN(MahalanobisMixin):
    init: Any = "auto"
    n_neighbors: Any = 3
    min_iter: Any = 50
    max_iter: Any = 1000
    learn_rate: Any = 1e-7
    regularization: Any = 0.5
    convergence_tol: Any = 0.001
    verbose: Any = False
    preprocessor: Any = None
    n_components: Any = None
    random_state: Any = None
    k: Any = "deprecated"

    def _learner(self) -> Any:
        return ours.LMNN(
            self.n_components,
            n_neighbors=self.n_neighbors,
            mu=self.regularization,
            init=self.init,
            max_iter=self.max_iter,
            tol=self.convergence_tol,
            random_state=self.random_state,
        )


@parameters
class NCA(MahalanobisMixin):
    init: Any = "auto"
    n_components: Any = None
    max_iter: Any = 100
    tol: Any = None
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None

    def _learner(self) -> Any:
        return ours.NCA(
            self.n_components, init=self.init, max_iter=self.max_iter, tol=self.tol or 1e-5,
            random_state=self.random_state,
        )  # fmt: skip


@parameters
class LFDA(MahalanobisMixin):
    n_components: Any = None
    k: Any = None
    embedding_type: Any = "weighted"
    preprocessor: Any = None

    def _learner(self) -> Any:
        embedding = {"orthonormalized": "orthonormal"}.get(self.embedding_type, self.embedding_type)
        return ours.LFDA(self.n_components, n_neighbors=self.k or 7, embedding=embedding)


@parameters
class MLKR(MahalanobisMixin):
    n_components: Any = None
    init: Any = "auto"
    tol: Any = None
    max_iter: Any = 1000
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None

    def _learner(self) -> Any:
        return ours.MLKR(
            self.n_components, reg=0.0, init=self.init, max_iter=self.max_iter, tol=self.tol or 1e-6,
            random_state=self.random_state,
        )  # fmt: skip


@parameters
class RCA(MahalanobisMixin):
    n_components: Any = None
    preprocessor: Any = None

    def _learner(self) -> Any:
        return ours.RCA(self.n_components, reg=0.0)

    def _side(self, X: Any, y: Any) -> Any:
        return ours.Chunklets(y)


@parameters
class RCA_Supervised(MahalanobisMixin):
    n_components: Any = None
    n_chunks: Any = 100
    chunk_size: Any = 2
    preprocessor: Any = None
    random_state: Any = None
    num_chunks: Any = "deprecated"

    def _learner(self) -> Any:
        return ours.RCA(self.n_components)

    def _side(self, X: Any, y: Any) -> Any:
        return ours.RandomChunklets(self.n_chunks, size=self.chunk_size).draw(X, ours.Labels(y), self._rng())


@parameters
class ITML(_PairsClassifierMixin, MahalanobisMixin):
    gamma: Any = 1.0
    max_iter: Any = 1000
    tol: Any = 1e-3
    prior: Any = "identity"
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None
    convergence_threshold: Any = "deprecated"

    def _learner(self) -> Any:
        return ours.ITML(gamma=self.gamma, prior=self.prior, max_iter=self.max_iter, random_state=self.random_state)


@parameters
class ITML_Supervised(MahalanobisMixin):
    gamma: Any = 1.0
    max_iter: Any = 1000
    tol: Any = 1e-3
    n_constraints: Any = None
    prior: Any = "identity"
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None
    num_constraints: Any = "deprecated"
    convergence_threshold: Any = "deprecated"

    def _learner(self) -> Any:
        pairs = "auto" if self.n_constraints is None else ours.RandomPairs(self.n_constraints)
        return ours.ITML(
            gamma=self.gamma, prior=self.prior, pairs=pairs, max_iter=self.max_iter, random_state=self.random_state
        )


@parameters
class MMC(_PairsClassifierMixin, MahalanobisMixin):
    max_iter: Any = 100
    max_proj: Any = 10000
    tol: Any = 1e-3
    init: Any = "identity"
    diagonal: Any = False
    diagonal_c: Any = 1.0
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None
    convergence_threshold: Any = "deprecated"

    def _learner(self) -> Any:
        return ours.MMC(diagonal=self.diagonal, init=self.init, max_iter=self.max_iter, random_state=self.random_state)


@parameters
class MMC_Supervised(MahalanobisMixin):
    max_iter: Any = 100
    max_proj: Any = 10000
    tol: Any = 1e-6
    n_constraints: Any = None
    init: Any = "identity"
    diagonal: Any = False
    diagonal_c: Any = 1.0
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None
    num_constraints: Any = "deprecated"
    convergence_threshold: Any = "deprecated"

    def _learner(self) -> Any:
        pairs = "auto" if self.n_constraints is None else ours.RandomPairs(self.n_constraints)
        return ours.MMC(
            diagonal=self.diagonal, init=self.init, pairs=pairs, max_iter=self.max_iter, random_state=self.random_state
        )


@parameters
class SDML(_PairsClassifierMixin, MahalanobisMixin):
    balance_param: Any = 0.5
    sparsity_param: Any = 0.01
    prior: Any = "identity"
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None

    def _learner(self) -> Any:
        return ours.SDML(balance=self.balance_param, sparsity=self.sparsity_param, prior=self.prior)


@parameters
class SDML_Supervised(MahalanobisMixin):
    balance_param: Any = 0.5
    sparsity_param: Any = 0.01
    prior: Any = "identity"
    n_constraints: Any = None
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None
    num_constraints: Any = "deprecated"

    def _learner(self) -> Any:
        return ours.SDML(balance=self.balance_param, sparsity=self.sparsity_param, prior=self.prior)


@parameters
class LSML(_QuadrupletsClassifierMixin, MahalanobisMixin):
    tol: Any = 1e-3
    max_iter: Any = 1000
    prior: Any = "identity"
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None

    def _learner(self) -> Any:
        return ours.LSML(prior=self.prior, max_iter=self.max_iter, random_state=self.random_state)


@parameters
class LSML_Supervised(MahalanobisMixin):
    tol: Any = 1e-3
    max_iter: Any = 1000
    prior: Any = "identity"
    n_constraints: Any = None
    weights: Any = None
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None
    num_constraints: Any = "deprecated"

    def _learner(self) -> Any:
        n = self.n_constraints
        comparisons = "auto" if n is None else ours.RandomComparisons(n, anchored=False)
        return ours.LSML(
            prior=self.prior, comparisons=comparisons, max_iter=self.max_iter, random_state=self.random_state
        )


@parameters
class SCML(_TripletsClassifierMixin, MahalanobisMixin):
    beta: Any = 1e-5
    basis: Any = "triplet_diffs"
    n_basis: Any = None
    gamma: Any = 5e-3
    max_iter: Any = 10000
    output_iter: Any = 500
    batch_size: Any = 10
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None

    def _learner(self) -> Any:
        return ours.SCML(self.n_basis, max_iter=self.max_iter, random_state=self.random_state)


@parameters
class SCML_Supervised(MahalanobisMixin):
    k_genuine: Any = 3
    k_impostor: Any = 10
    beta: Any = 1e-5
    basis: Any = "lda"
    n_basis: Any = None
    gamma: Any = 5e-3
    max_iter: Any = 10000
    output_iter: Any = 500
    batch_size: Any = 10
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None

    def _learner(self) -> Any:
        drawn = ours.NeighborTriplets(self.k_genuine, misses=self.k_impostor)
        return ours.SCML(self.n_basis, comparisons=drawn, max_iter=self.max_iter, random_state=self.random_state)
