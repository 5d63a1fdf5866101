"""Learners of a metric for each of several tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from isometry.base import LinearMetric


class TaskMetric(LinearMetric):
    """Abstract: ``fit(X, y, tasks=t)`` with the name of a task for each sample leaves a map for each task.

    ``transform`` is for samples of tasks that were not there.
    """

    tasks_: np.ndarray  # (T,) names of the tasks, sorted
    task_components_: np.ndarray  # (T, r, d)

    def task_transform(self, X: Any, task: Any) -> np.ndarray:
        """Map X by the metric of one task.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        task : object
            Name of the task.

        Returns
        -------
        ndarray of shape (n_samples, p)
            The mapped samples.
        """
        check_is_fitted(self)
        found = np.flatnonzero(self.tasks_ == task)
        if len(found) != 1:
            raise ValueError(f"task={task!r} is unknown; the tasks of the fit are {', '.join(map(str, self.tasks_))}")
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return X @ self.task_components_[found[0]].T.astype(X.dtype, copy=False)
