"""Kernel methods: a few of their own, and kernel versions of linear learners."""

from isometry.registry.exports import exports

__all__, __getattr__, __dir__ = exports(__name__)
