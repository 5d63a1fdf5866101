"""Objectives that are more than a loss of embeddings: (model, batch) → scalar."""
