"""Tables in and out, and fitted metrics in one file without pickle."""

from isometry.io.store import StoreError, load, read_card, save
from isometry.io.tables import Table, TableError, read_table, write_table

__all__ = ["StoreError", "Table", "TableError", "load", "read_card", "read_table", "save", "write_table"]
