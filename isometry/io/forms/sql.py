"""SQL that maps vectors inside a database: DuckDB, and PostgreSQL with pgvector."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from isometry.io.forms.matrix import only_linear
from isometry.io.forms.steps import ExportError, Step

MAX_DIMENSIONS = 16_000  # of a vector in pgvector

DUCKDB = """-- {title}
-- isometry_embed(x) maps a list or array of {d} numbers to {p}; isometry_distance(a, b) is the learned distance:
--   SELECT id FROM items ORDER BY isometry_distance(x, [...]) LIMIT 10;
-- Faster, if searched often: store isometry_embed(x) beside x and order by list_distance of it.
BEGIN;
CREATE TABLE isometry_map (k INTEGER, w DOUBLE[]);
INSERT INTO isometry_map VALUES
{rows};
CREATE MACRO isometry_embed(x) AS (
  SELECT list(list_dot_product(w, x::DOUBLE[]) ORDER BY k) FROM isometry_map
);
CREATE MACRO isometry_distance(a, b) AS list_distance(isometry_embed(a), isometry_embed(b));
COMMIT;
"""

PGVECTOR = """-- {title}
-- isometry_embed(x) maps a vector({d}) to a vector({p}); isometry_distance(a, b) is the learned distance:
--   SELECT id FROM items ORDER BY isometry_distance(x, '[...]') LIMIT 10;
-- Faster, if searched often: store isometry_embed(x) beside x, index that column, and order by <->.
BEGIN;
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE isometry_map (k integer PRIMARY KEY, w vector({d}) NOT NULL);
INSERT INTO isometry_map VALUES
{rows};
CREATE FUNCTION isometry_embed(x vector({d})) RETURNS vector LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
  SELECT array_agg((-(w <#> x))::real ORDER BY k)::vector FROM isometry_map
$$;
CREATE FUNCTION isometry_distance(a vector({d}), b vector({d})) RETURNS double precision
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
  SELECT isometry_embed(a) <-> isometry_embed(b)
$$;
COMMIT;
"""


def write_duckdb(steps: list[Step], path: Path, about: dict[str, str]) -> None:
    """A table with the matrix, and macros that use it."""
    _write(DUCKDB, "({k}, {row})", only_linear(steps).matrix, path, about)


def write_pgvector(steps: list[Step], path: Path, about: dict[str, str]) -> None:
    """A table with the matrix in 32 bits, as all vectors of pgvector are, and functions that use it."""
    W = only_linear(steps).matrix
    if max(W.shape) > MAX_DIMENSIONS:
        raise ExportError(f"a vector of pgvector has at most {MAX_DIMENSIONS} dimensions, and the map is {W.shape}")
    _write(PGVECTOR, "({k}, '{row}')", W.astype(np.float32), path, about)


def _write(template: str, cell: str, W: np.ndarray, path: Path, about: dict[str, str]) -> None:
    rows = [cell.format(k=k, row="[" + ", ".join(map(str, row.tolist())) + "]") for k, row in enumerate(W)]
    title = f"The map of a metric learned with isometry {about['isometry']}: {about['metric']}"
    text = template.format(title=title, d=W.shape[1], p=W.shape[0], rows=",\n".join(rows))
    path.write_text(text, encoding="utf-8")
