"""Kernel methods."""


__all__ = []
