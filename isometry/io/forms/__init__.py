"""A fitted metric in forms that run without isometry."""

from isometry.io.forms.export import FORMS, export, exportable_forms, form_of
from isometry.io.forms.steps import ExportError

__all__ = ["FORMS", "ExportError", "export", "exportable_forms", "form_of"]
