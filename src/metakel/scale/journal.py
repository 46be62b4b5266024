"""The last round on disk, from which interrupted learning goes on."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel._json import Format, write_file
from metakel.errors import InputError

LOG = logging.getLogger("metakel")
FORMAT = Format("metakel-rounds", version=1, noun="journal of rounds")


class Journal:
    """A file with the weights of the last accepted round.

    They are stored as w = (2/N) x, which depends neither on lambda nor on the number of tasks.
    ``about`` says what is learned from what; a file about something else is refused.
    """

    def __init__(self, path: str | Path, about: Any) -> None:
        self.path = Path(path)
        self._about = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        self._round = 0

    def write(self, groups: NDArray[np.intp], w: Array) -> None:
        """Replace the last round; a crash leaves either the old one or the new one."""
        self._round += 1
        content = {
            "about": self._about,
            "round": self._round,
            "groups": groups.tolist(),
            "w": w.tolist(),
        }
        write_file(self.path, FORMAT.dump(content))

    def last(self, p: int) -> Array | None:
        """(p,) weights w of the last round, None if there is none."""
        if not self.path.exists():
            return None
        weights = np.zeros(p)
        with FORMAT.read_file(self.path) as content:
            if content["about"] != self._about:
                raise InputError(
                    "it is about other tasks, base kernels or loss; remove it, or choose another "
                    "journal"
                )
            weights[content["groups"]] = content["w"]
            self._round = content["round"]
        LOG.info("going on from round %d in %s", self._round, self.path)
        return weights
