"""A private class that metric-learn's tests name."""


class _BaseSDML:
    pass
