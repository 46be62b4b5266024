"""The last round on disk, from which interrupted learning continues."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.scale.sums import Index

LOG = logging.getLogger("metakel")
FORMAT = "metakel-rounds"


class Checkpoint:
    """A file with the weights of the last accepted round.

    Weights are stored as w = (2/N) x, which depends neither on lambda nor on the number of tasks.

    Parameters
    ----------
    path : path
    content : any JSON value
        What is learned from what. A file that was written for something else is refused.
    """

    def __init__(self, path: str | Path, content: Any) -> None:
        self.path = Path(path)
        self._content = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        self._round = 0

    def write(self, groups: Index, w: Array) -> None:
        """Replace the last round; a crash leaves either the old one or the new one."""
        self._round += 1
        stored = {
            "format": FORMAT,
            "version": 1,
            "about": self._content,
            "round": self._round,
            "groups": groups.tolist(),
            "w": w.tolist(),
        }
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_text(json.dumps(stored), encoding="utf-8")
        os.replace(temporary, self.path)

    def read(self, p: int) -> Array | None:
        """(p,) weights w of the last round, or None if there is none."""
        if not self.path.exists():
            return None
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            found, content = stored["format"], stored["about"]
            groups, w = stored["groups"], stored["w"]
            self._round = stored["round"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise InputError(f"{self.path} is not a checkpoint of learning: {error!r}") from None
        if found != FORMAT or content != self._content:
            raise InputError(
                f"{self.path} is a checkpoint for other tasks, base kernels or loss; "
                "remove it, or choose another file"
            )
        LOG.info("continuing from round %d in %s", self._round, self.path)
        weights = np.zeros(p)
        weights[groups] = w
        return weights
