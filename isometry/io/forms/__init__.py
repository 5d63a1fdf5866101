"""A fitted metric in forms that run without isometry."""

from isometry.io.forms.steps import ExportError
from isometry.io.forms.writing import FORMS, export, exportable_forms, form_of

__all__ = ["FORMS", "ExportError", "export", "exportable_forms", "form_of"]
