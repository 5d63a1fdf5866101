"""Settings of a command in a file: ``--config file.toml``, and of the trainer behind it: ``--set name=value``."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

import typer

from isometry.cli.inputs import parse_value
from isometry.cli.outputs import UsageError

OWN_OPTIONS = {  # settings of the trainer that have an option of the command
    "lr": "--lr",
    "classes_per_batch": "--batch",
    "samples_per_class": "--batch",
    "max_epochs": "--epochs",
    "batches_per_epoch": "--epochs",
    "patience": "--patience",
    "precision": "--precision",
}


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the values of a TOML file for options that the command line does not give.

    Its keys are the options of the command and the settings of the trainer, flat or in tables named by their group,
    and a table ``loss`` with a ``name`` and the values of the loss.
    """
    if path is None or context.resilient_parsing:
        return path
    values = _read(path)
    options = {p.name for p in context.command.params if p.name} - {"config", "help", "trainer_settings"}
    settings = trainer_settings()
    found: dict[str, Any] = {}
    extra: list[str] = []
    loss = values.get("loss")
    if isinstance(loss, dict):
        values["loss"] = _as_call(path, loss)
    for key, value in _flat(path, values, settings):
        name = key.replace("-", "_")
        if name in settings and name not in options:
            extra.append(f"{name}={value!r}")
        elif name in options:
            found[name] = _as_text(value)
        else:
            near = difflib.get_close_matches(name, [*options, *settings], 1, cutoff=0.0)[0]
            known = ", ".join(sorted(o.replace("_", "-") for o in options))
            raise UsageError(f"{path}: {key} is unknown; the nearest that is known is {near}. Options are {known}; "
                             f"settings of the trainer are {', '.join(sorted(settings))}")  # fmt: skip
    if extra:
        found["trainer_settings"] = extra
    context.default_map = {**(context.default_map or {}), **found}
    return path


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"--config {path} is no TOML: {error}") from error


def _as_call(path: Path, loss: dict[str, Any]) -> str:
    """``{name = "Triplet", margin = 0.3}`` as "Triplet(margin=0.3)"."""
    if not isinstance(loss.get("name"), str):
        raise UsageError(f'{path}: the table loss needs a name, such as name = "Triplet"')
    return f"{loss['name']}({', '.join(f'{k}={v!r}' for k, v in loss.items() if k != 'name')})"


def _flat(path: Path, values: dict[str, Any], settings: dict[str, str]) -> list[tuple[str, Any]]:
    groups = set(settings.values())
    flat: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict) and key in groups:
            wrong = [k for k in value if settings.get(k) != key]
            if wrong:
                known = [k for k, group in settings.items() if group == key]
                near = difflib.get_close_matches(wrong[0], known, 1, cutoff=0.0)[0]
                raise UsageError(f"{path}: {key}.{wrong[0]} is unknown; the nearest that is known is {key}.{near}, of "
                                 f"{', '.join(known)}")  # fmt: skip
            flat += value.items()
        else:
            flat.append((key, value))
    return flat


def _as_text(value: Any) -> Any:
    """What the command line would have: options are parsed from texts, flags are not."""
    return value if isinstance(value, bool) else str(value)


def trainer_settings() -> dict[str, str]:
    """Every setting of the trainer and its group."""
    from isometry.deep.settings import GROUP_OF

    return GROUP_OF


def parse_settings(texts: list[str]) -> dict[str, Any]:
    """``name=value`` of ``--set`` as settings of the trainer."""
    known, found = trainer_settings(), {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or name not in known:
            near = difflib.get_close_matches(name, known, 1, cutoff=0.0)[0]
            raise UsageError(f"--set {text}: expected name=value with a setting of the trainer; the nearest is {near}, "
                             f"of {', '.join(sorted(known))}")  # fmt: skip
        if name in OWN_OPTIONS:
            raise UsageError(f"--set {text}: this has an option of its own, {OWN_OPTIONS[name]}")
        found[name] = parse_value(value.strip())
    return found
