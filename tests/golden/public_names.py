"""The public names of the package, and how many arguments each takes.

``python tests/golden/public_names.py`` writes public_names.json anew, in the commit that changes
them: so a review sees what users will see.
"""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import metakel as mk

NAMES = Path(__file__).with_name("public_names.json")
PACKAGES = (
    "confidence", "data", "gp", "grouplasso", "integrations.gpytorch", "integrations.optuna",
    "integrations.sklearn", "io", "kernels", "learn", "optimize", "priors", "report", "safe",
    "scale", "search", "space", "testing", "theory", "tuner",
)  # fmt: skip


def public_names() -> dict[str, dict[str, list[str]]]:
    """By module: its public names, each with its arguments."""
    modules: dict[str, Any] = {"metakel": mk}
    for name in PACKAGES:
        try:
            modules[f"metakel.{name}"] = import_module(f"metakel.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"metakel.{name}":
                raise
    return {where: _names(module) for where, module in modules.items()}


def _names(module: Any) -> dict[str, list[str]]:
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if _ours(name, value)
    ]
    return {name: _arguments(getattr(module, name)) for name in sorted(names)}


def _ours(name: str, value: Any) -> bool:
    owner = getattr(value, "__module__", None) or ""
    return not name.startswith("_") and not inspect.ismodule(value) and owner.startswith("metakel")


def _arguments(value: Any) -> list[str]:
    try:
        return list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return []


if __name__ == "__main__":
    NAMES.write_text(json.dumps(public_names(), indent=1) + "\n", encoding="utf-8")
