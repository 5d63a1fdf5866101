"""Errors of metric-learn; ours are all ValueErrors."""


class PreprocessorError(ValueError):
    pass


class NonPSDError(ValueError):
    pass
