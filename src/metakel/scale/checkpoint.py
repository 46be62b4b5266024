"""The last round on disk, from which interrupted learning continues."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel._json import Format, write_file
from metakel.errors import InputError
from metakel.scale.sums import Index

LOG = logging.getLogger("metakel")
FORMAT = Format("metakel-rounds", version=1, noun="checkpoint")


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
        content = {
            "about": self._content,
            "round": self._round,
            "groups": groups.tolist(),
            "w": w.tolist(),
        }
        write_file(self.path, FORMAT.dump(content))

    def read(self, p: int) -> Array | None:
        """(p,) weights w of the last round, or None if there is none."""
        if not self.path.exists():
            return None
        weights = np.zeros(p)
        with FORMAT.read_file(self.path) as content:
            if content["about"] != self._content:
                raise InputError(
                    "it is a checkpoint for other tasks, base kernels or loss; remove it, or "
                    "choose another file"
                )
            weights[content["groups"]] = content["w"]
            self._round = content["round"]
        LOG.info("continuing from round %d in %s", self._round, self.path)
        return weights
