"""How each library is called. Imported in the library's own environment, so it needs no more than NumPy itself.

Every function prepares a fit on (X, y) and returns it: what is imported and constructed here is not measured. A fit
returns a map L (p, d), complex or not finite if that is what the library learned, or a dict of figures. A pair of
functions is a fit, and what makes the images of all rows of what it has learned, which is not measured either.
"""

from functools import partial

import numpy as np


def isometry(X, y, name, **params):
    import isometry as package

    if params.get("init") == "eye":
        params["init"] = np.eye(X.shape[1])  # as it is; of the start that is called "identity" we take a multiple
    learner = getattr(package, name)(**params)
    return lambda: learner.fit(X, y).components_


def isometry_steps(X, y, name, times):
    """So many evaluations of value and gradient, all that a step of the solver does, at the start."""
    import isometry as package
    from isometry.core.graph import target_neighbors
    from isometry.core.start import neighbor_sqdist
    from isometry.spectral.impostors import Impostors, best_multiple

    rng, side, learner = np.random.RandomState(0), package.Labels(y), getattr(package, name)()
    X, L = X - X.mean(axis=0), np.eye(X.shape[1])
    if name == "LMNN":
        targets = target_neighbors(X, side.codes, 3)
        L = L * np.sqrt(best_multiple(X, side.codes, targets, 0.5, 1.0, rng))
        problem = Impostors(X, side.codes, targets, 1.0, None)

        def evaluate():
            problem.restart(L)  # a search for impostors
            return problem(L, 0.5, 0.1)[0]
    elif name == "LDML":
        from isometry.probabilistic.ldml import mean_logistic
        from isometry.sampling import signed_edges

        threshold = mean_logistic(X, signed_edges(side, "auto", X, rng))
        L = L / np.sqrt(neighbor_sqdist(X, rng))

        def evaluate():
            return threshold([L, np.ones(1)])[0]
    elif name == "ITML":
        from isometry.probabilistic.itml import LogDetProblem
        from isometry.sampling import signed_edges

        divergence = LogDetProblem(X, signed_edges(side, "auto", X, rng), learner._find_bounds(X, rng), learner.gamma)

        def evaluate():
            return divergence.objective(L)[0]
    else:
        objective = learner._objective(X, side, rng)
        L = L / np.sqrt(neighbor_sqdist(X, rng))
        L = L[:40] if name == "PCCA" else L

        def evaluate():
            return objective(L)[0]

    evaluate()
    return lambda: {"value": sum(evaluate() for _ in range(times)) / times}


def isometry_pairs(X, y, name, pairs, **params):
    """From listed pairs (m, 3): i, j, similar."""
    import isometry as package

    i, j, similar = pairs.T
    learner, side = getattr(package, name)(**params), package.Pairs(i, j, similar.astype(bool), n=len(X))
    return lambda: learner.fit(X, side).components_


def isometry_quadruplets(X, y, name, quadruplets, **params):
    """From listed comparisons (m, 4): the pair of the first two is nearer than that of the last two."""
    import isometry as package

    if params.get("prior") == "eye":
        params["prior"] = np.eye(X.shape[1])  # as it is; the prior that is called "identity" has the unit of the data
    learner, side = getattr(package, name)(**params), package.Quadruplets(*quadruplets.T, n_samples=len(X))
    return lambda: learner.fit(X, side).components_


def isometry_embedding(X, y, name, others, **params):
    """A learner whose map is no matrix: the images of X and of ``others`` under it."""
    import isometry as package

    learner = getattr(package, name)(**params)
    return lambda: learner.fit(X, y), lambda fitted: fitted.transform(np.vstack([X, others]))


def isometry_chunks(X, y, name, rows, **params):
    """From a Dask array with so many rows a chunk; each is read when it is needed (from_array would copy it all)."""
    import dask
    import dask.array as da

    import isometry as package

    def lazily(array):
        read, parts = dask.delayed(lambda start: np.asarray(array[start : start + rows]), pure=False), []
        for start in range(0, len(array), rows):
            shape = (min(rows, len(array) - start), *array.shape[1:])
            parts.append(da.from_delayed(read(start), shape, array.dtype))
        return da.concatenate(parts)

    learner = getattr(package, name)(**params)
    return lambda: learner.fit(lazily(X), lazily(y)).components_


def isometry_batch_loss(X, y, name, times):
    """So many values and gradients of a loss on one batch."""
    import torch

    from isometry import deep

    z, labels, loss = torch.tensor(X, requires_grad=True), torch.tensor(y), getattr(deep, name)()

    def fit():
        for _ in range(times):
            z.grad = None
            loss(z, labels).backward()
        return {"value": float(loss(z, labels))}

    return fit


def isometry_retrieval(X, y):
    from isometry.eval import retrieval

    def measure():
        values = retrieval(X, y, ks=(1,)).mean()
        return {"recall@1": values["recall@1"], "map@r": values["map@r"]}

    return measure


def machine(X, y):
    """What the machine does: products of float32 matrices, GFLOP/s, and copies of an array, GB/s read and written.

    Of one thread by its CPU seconds, of several by the clock: the machine must be idle then.
    """
    import os
    import time

    import torch

    clock = time.process_time if os.environ.get("OMP_NUM_THREADS") == "1" else time.perf_counter

    def best(do):
        do()
        times = []
        for _ in range(7):
            start = clock()
            do()
            times.append(clock() - start)
        return min(times)

    A, B = np.random.default_rng(0).standard_normal((2, 2048, 2048), dtype=np.float32)
    C = np.empty_like(A)
    source, target = torch.ones(1 << 26), torch.empty(1 << 26)  # torch copies in threads

    def measure():
        seconds = best(lambda: np.matmul(A, B, out=C)), best(lambda: target.copy_(source))
        return {"gflops": 2 * 2048**3 / seconds[0] / 1e9, "gbs": 8 * source.numel() / seconds[1] / 1e9}

    return measure


def product(X, y):
    """One matrix product, the yardstick of closed forms."""
    return lambda: {"trace": float(np.trace(X.T @ X))}


def scikit_learn_nca(X, y, **params):
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    learner = NeighborhoodComponentsAnalysis(**params)
    return lambda: learner.fit(X, y).components_


def metric_learn(X, y, name, **params):
    import metric_learn as package

    learner = getattr(package, name)(**params)
    return lambda: learner.fit(X, y).components_


def metric_learn_pairs(X, y, name, pairs, bounds=None, **params):
    import metric_learn as package

    learner = getattr(package, name)(**params)
    options = {} if bounds is None else {"bounds": bounds}
    tuples, signs = np.stack([X[pairs[:, 0]], X[pairs[:, 1]]], axis=1), np.where(pairs[:, 2], 1, -1)
    return lambda: learner.fit(tuples, signs, **options).components_


def metric_learn_quadruplets(X, y, name, quadruplets, **params):
    import metric_learn as package

    learner, tuples = getattr(package, name)(**params), X[quadruplets]
    return lambda: learner.fit(tuples).components_


def pylmnn(X, y, **params):
    from pylmnn import LargeMarginNearestNeighbor

    learner = LargeMarginNearestNeighbor(**params)
    return lambda: learner.fit(X, y).components_


def mlpack_lmnn(X, y, **params):
    from mlpack import lmnn

    return lambda: lmnn(input_=X, labels=y, **params)["output"].T  # it multiplies rows from the right


def pydml(X, y, name, **params):
    import dml

    learner = getattr(dml, name)(**params)
    return lambda: np.asarray(learner.fit(X, y).transformer())


def pydml_embedding(X, y, name, others, **params):
    """A learner whose map is no matrix: the images of X and of ``others`` under it."""
    import dml

    learner = getattr(dml, name)(**params)
    return lambda: learner.fit(X, y), lambda fitted: fitted.transform(np.vstack([X, others]))


def accuracy_calculator(X, y):
    """pytorch-metric-learning with faiss; the depth that MAP@R needs is its cheapest exact setting."""
    import torch
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    calculator = AccuracyCalculator(
        include=("precision_at_1", "mean_average_precision_at_r"), k="max_bin_count", device=torch.device("cpu")
    )

    def measure():
        values = calculator.get_accuracy(torch.from_numpy(X), torch.from_numpy(y))
        return {"recall@1": values["precision_at_1"], "map@r": values["mean_average_precision_at_r"]}

    return measure


CALLS = {
    function.__name__: function
    for function in (
        *(isometry, isometry_steps, isometry_pairs, isometry_quadruplets, isometry_embedding, isometry_chunks),
        *(
            isometry_batch_loss,
            isometry_retrieval,
            machine,
            product,
            scikit_learn_nca,
            metric_learn,
            metric_learn_pairs,
            metric_learn_quadruplets,
        ),
        *(pylmnn, mlpack_lmnn, pydml, pydml_embedding, accuracy_calculator),
    )
}


def prepare(call, X, y, arrays, params):
    """The fit that a job describes; ``arrays`` are parameters that JSON cannot hold."""
    return partial(CALLS[call], X, y)(**params, **arrays)
