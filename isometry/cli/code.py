"""Code that the user names on the command line: ``module:factory``."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from isometry.cli.outputs import UsageError

LIBRARIES = ("timm", "torchvision", "transformers")


def is_library(backbone: Any) -> bool:
    """Whether this is a text that names a network of a library, such as ``timm:resnet18``."""
    return isinstance(backbone, str) and ":" in backbone and backbone.partition(":")[0] in LIBRARIES


def is_code(backbone: Any) -> bool:
    """Whether this is a text that names code, and not one of the networks that come with the package or a library."""
    return isinstance(backbone, str) and ":" in backbone and not is_library(backbone)


def load_factory(text: str) -> Callable[..., Any]:
    """The function or class ``factory`` of ``module:factory``; the module may be a file in the present folder."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise UsageError(f"--backbone {text}: expected module:factory, such as nets:make, a function of the shape of a "
                         "sample and the dimension of the embedding")  # fmt: skip
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there and lacks another
        raise UsageError(f"--backbone {text}: there is no module {error.name}, here or in the environment") from error
    finally:
        sys.path.remove(os.getcwd())
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"--backbone {text}: {module} has no {part}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"--backbone {text} is a {type(found).__name__}, not a function that makes a network")
    factory: Callable[..., Any] = found
    return factory
