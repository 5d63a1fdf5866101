"""Tables in and out, and fitted metrics in one file without pickle."""

from isometry.io.forms import ExportError, export, exportable_forms
from isometry.io.model_card import card, fingerprint
from isometry.io.store import StoreError, load, read_card, save
from isometry.io.tables import Table, TableError, read_table, write_table

__all__ = [
    "ExportError",
    "StoreError",
    "Table",
    "TableError",
    "card",
    "export",
    "exportable_forms",
    "fingerprint",
    "load",
    "read_card",
    "read_table",
    "save",
    "write_table",
]
