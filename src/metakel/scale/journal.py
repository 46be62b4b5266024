"""The last round on disk, from which interrupted learning goes on."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError

LOG = logging.getLogger("metakel")
FORMAT = "metakel-rounds"


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
            "format": FORMAT,
            "version": 1,
            "about": self._about,
            "round": self._round,
            "groups": groups.tolist(),
            "w": w.tolist(),
        }
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_text(json.dumps(content), encoding="utf-8")
        os.replace(temporary, self.path)

    def last(self, p: int) -> Array | None:
        """(p,) weights w of the last round, None if there is none."""
        if not self.path.exists():
            return None
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            found, about = content["format"], content["about"]
            groups, w = content["groups"], content["w"]
            self._round = content["round"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise InputError(f"{self.path} is not a journal of rounds: {error!r}") from None
        if found != FORMAT or about != self._about:
            raise InputError(
                f"{self.path} is about other tasks, base kernels or loss; "
                "remove it, or choose another journal"
            )
        LOG.info("going on from round %d in %s", self._round, self.path)
        weights = np.zeros(p)
        weights[groups] = w
        return weights
