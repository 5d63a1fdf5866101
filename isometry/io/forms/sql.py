"""SQL that maps vectors inside a database: DuckDB, and PostgreSQL with pgvector."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from isometry.io.forms.layers import Layer, linear_layers
from isometry.io.forms.steps import ExportError, Step

MAX_DIMENSIONS = 16_000  # of a vector in pgvector

DUCKDB = """-- {title}
-- isometry_embed(x) maps a list or array of {d} numbers to {p}; isometry_distance(a, b) is the learned distance:
--   SELECT id FROM items ORDER BY isometry_distance(x, [...]) LIMIT 10;
-- Faster, if searched often: store isometry_embed(x) beside x and order by list_distance of it.
BEGIN;
{layers}
CREATE MACRO isometry_distance(a, b) AS list_distance(isometry_embed(a), isometry_embed(b));
COMMIT;
"""
DUCKDB_LAYER = """CREATE TABLE {table} (k INTEGER, w DOUBLE[], bias DOUBLE);
INSERT INTO {table} VALUES
{rows};
CREATE MACRO {embed}(x) AS (
  {select}
);"""

PGVECTOR = """-- {title}
-- isometry_embed(x) maps a vector({d}) to a vector({p}); isometry_distance(a, b) is the learned distance:
--   SELECT id FROM items ORDER BY isometry_distance(x, '[...]') LIMIT 10;
-- Faster, if searched often: store isometry_embed(x) beside x, index that column, and order by <->.
BEGIN;
CREATE EXTENSION IF NOT EXISTS vector;
{layers}
CREATE FUNCTION isometry_distance(a vector({d}), b vector({d})) RETURNS double precision
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
  SELECT isometry_embed(a) <-> isometry_embed(b)
$$;
COMMIT;
"""
PGVECTOR_LAYER = """CREATE TABLE {table} (k integer PRIMARY KEY, w vector({width}), bias double precision);
INSERT INTO {table} VALUES
{rows};
CREATE FUNCTION {embed}(x vector({d})) RETURNS vector LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
  {select}
$$;"""
TINY = "1e-30"  # a length that is no more than this is one of 0, whose direction stays 0


def write_duckdb(steps: list[Step], path: Path, about: dict[str, str]) -> None:
    """A table with the matrix of each linear map, and macros that use it."""
    layers = linear_layers(steps)
    written, x = [], "x::DOUBLE[]"
    for layer, table, embed in _named(layers):
        of_row, length = f"list_dot_product(w, {x})", f"sqrt(list_dot_product({x}, {x}))"
        select = _select(layer, of_row, length, table, "list({} ORDER BY k)")
        rows = _rows(layer, "({k}, {w}, {b})")
        written.append(DUCKDB_LAYER.format(table=table, embed=embed, rows=rows, select=select))
        x = f"{embed}(x)"
    _write(DUCKDB, layers, written, path, about)


def write_pgvector(steps: list[Step], path: Path, about: dict[str, str]) -> None:
    """A table with the matrix of each linear map in 32 bits, as all vectors of pgvector are, and functions with it."""
    layers = linear_layers(steps)
    written, x, d = [], "x", layers[0].d
    for layer, table, embed in _named(layers):
        if max(layer.p, layer.d) > MAX_DIMENSIONS:
            shape = (layer.p, layer.d)
            raise ExportError(f"a vector of pgvector has at most {MAX_DIMENSIONS} dimensions, and the map is {shape}")
        select = _select(layer, f"-(w <#> {x})", f"vector_norm({x})", table, "array_agg(({})::real ORDER BY k)::vector")
        rows = _rows(layer, "({k}, '{w}', {b})", np.float32)
        names = {"table": table, "embed": embed, "width": layer.d, "d": d}
        written.append(PGVECTOR_LAYER.format(**names, rows=rows, select=select))
        x = f"{embed}(x)"
    _write(PGVECTOR, layers, written, path, about)


def _named(layers: list[Layer]) -> list[tuple[Layer, str, str]]:
    """Each layer with the names of its table and of its function; those of the last are the ones that people use."""
    before = [(layer, f"isometry_map_{k}", f"isometry_layer_{k}") for k, layer in enumerate(layers[:-1], start=1)]
    return [*before, (layers[-1], "isometry_map", "isometry_embed")]


def _select(layer: Layer, of_row: str, length: str, table: str, gather: str) -> str:
    """The query that maps x: ``of_row`` is a row of the matrix times x, ``gather`` makes one vector of all rows."""
    value = f"{of_row} / greatest({length}, {TINY}) + bias" if layer.unit_first else f"{of_row} + bias"
    mapped = f"(SELECT k, {value} AS v FROM {table}) AS mapped"
    if not layer.unit_last:
        return f"SELECT {gather.format('v')} FROM {mapped}"
    sized = f"(SELECT k, v, greatest(sqrt(sum(v * v) OVER ()), {TINY}) AS size FROM {mapped}) AS sized"
    return f"SELECT {gather.format('v / size')} FROM {sized}"


def _rows(layer: Layer, cell: str, dtype: type = np.float64) -> str:
    lines = zip(layer.affine.matrix.astype(dtype).tolist(), layer.affine.offset.tolist(), strict=True)
    return ",\n".join(
        cell.format(k=k, w="[" + ", ".join(map(str, w)) + "]", b=offset) for k, (w, offset) in enumerate(lines)
    )


def _write(template: str, layers: list[Layer], written: list[str], path: Path, about: dict[str, str]) -> None:
    title = f"The map of a metric learned with isometry {about['isometry']}: {about['metric']}"
    text = template.format(title=title, d=layers[0].d, p=layers[-1].p, layers="\n".join(written))
    path.write_text(text, encoding="utf-8")
