"""What workers on one study share through its storage: the prior, which one of them learns.

The worker of the first trial learns, and writes the prior to attributes of the study, in parts that
every storage can hold. A worker that begins meanwhile waits until it is there. Nobody waits for a
trial that was announced, or that began a minute ago: then a worker learns by itself, with the same
result.
"""

from __future__ import annotations

import json
import time
from base64 import b85decode, b85encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any
from zlib import compress, decompress
from zlib import error as Damaged

from optuna.storages import InMemoryStorage
from optuna.study import Study
from optuna.trial import FrozenTrial

from metakel._codec import decode, encode
from metakel.errors import MetaKelError
from metakel.integrations.optuna.record import CHUNK, running
from metakel.priors import Prior
from metakel.priors.prior import FORMAT

KEY = "metakel:prior"
MOST_PARTS = 64
WORTH = 0.2  # seconds: what is learned faster than this is learned again rather than shared
LOOK = 0.2  # seconds between two looks


def wait_for_prior(study: Study, trial: FrozenTrial, mark: str) -> None:
    """Return once a worker has learned from this past, or none is about to."""
    if isinstance(study._storage, InMemoryStorage):
        return  # threads of one process take turns
    while _head(_attributes(study)).get("mark") != mark:
        if not running(study.get_trials(deepcopy=False), trial.number).choosing:
            return
        time.sleep(LOOK)


def shared_prior(study: Study, mark: str, learn: Callable[[], Prior | None]) -> Prior | None:
    """What a worker on the study learned from the past that has this mark, or else ``learn()``."""
    if isinstance(study._storage, InMemoryStorage):
        return learn()
    stored = read_prior(study, mark)
    if stored is not None:
        return stored
    begun = time.perf_counter()
    prior = learn()
    if _head(_attributes(study)).get("mark") == mark:
        return read_prior(study, mark) or prior  # of another that was faster
    worth = time.perf_counter() - begun >= WORTH
    write_prior(study, mark, prior if worth else None)
    return prior


def read_prior(study: Study, mark: str) -> Prior | None:
    """What `write_prior` wrote; None where it wrote nothing, another past, or not all of it yet."""
    attributes = _attributes(study)
    head = _head(attributes)
    parts = [attributes.get(f"{KEY}:{i}") for i in range(head.get("parts", 0))]
    if head.get("mark") != mark or not parts:
        return None
    text = "".join(map(str, parts))
    if sha256(text.encode()).hexdigest() != head.get("digest"):
        return None
    try:
        with FORMAT.load(json.loads(decompress(b85decode(text)))) as content:
            return decode(Prior, content, f"prior of study {study.study_name!r}")
    except (MetaKelError, ValueError, Damaged):  # of another version
        return None


def write_prior(study: Study, mark: str, prior: Prior | None) -> None:
    """Share a prior; None where it is not worth it or there is none, so that nobody waits."""
    text = ""
    if prior is not None:
        text = b85encode(compress(json.dumps(FORMAT.dump(encode(prior))).encode(), 9)).decode()
    parts = [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]
    if len(parts) > MOST_PARTS:
        parts, text = [], ""
    storage, number = study._storage, study._study_id
    for i, part in enumerate(parts):
        storage.set_study_system_attr(number, f"{KEY}:{i}", part)
    digest = sha256(text.encode()).hexdigest()
    head: Any = {"mark": mark, "parts": len(parts), "digest": digest}
    storage.set_study_system_attr(number, KEY, head)  # last: all of it is there


def _attributes(study: Study) -> Mapping[str, Any]:
    return study._storage.get_study_system_attrs(study._study_id)


def _head(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict(attributes.get(KEY, {}))
