"""What finished studies teach, and how workers on one study share it through its storage.

The worker of the first trial learns, and writes the prior to attributes of the study, in parts that
every storage can hold. A worker that begins meanwhile waits until it is there. Nobody waits for a
trial that was announced, or that began a minute ago: then a worker learns by itself, with the same
result.
"""

from __future__ import annotations

import json
import logging
import time
from base64 import b85decode, b85encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from math import isfinite
from typing import Any
from zlib import compress, decompress
from zlib import error as Damaged

from optuna.storages import InMemoryStorage
from optuna.study import Study
from optuna.trial import FrozenTrial

from metakel._files import decode, encode
from metakel.data import History
from metakel.errors import InputError, MetaKelError
from metakel.integrations.optuna.record import CHUNK, running
from metakel.io.optuna import RecordedStudy, recorded_studies
from metakel.optimize.replays import RegretCalibration
from metakel.priors import Prior, learn_outputs, learn_prior
from metakel.priors.prior import FORMAT

LOGGER = logging.getLogger("metakel")
OBJECTIVE = "value"
KEY = "metakel:prior"
MOST_PARTS = 64
WORTH = 0.2  # seconds: what is learned faster than this is learned again rather than shared
LOOK = 0.2  # seconds between two looks


class SourceStudies:
    """Finished studies by their values, and what they teach, with options of `learn_prior`.

    Storages are read once, here: what is kept can be sent to another process. With ``strict``,
    constraints are learned, too, so that limits can be set on them.
    """

    def __init__(self, source: Any, *, strict: bool = False, **options: Any) -> None:
        studies, self.skipped = recorded_studies(source)
        for text in self.skipped:
            LOGGER.warning("%s", text)
        self._studies = tuple(
            s for s in studies if s.parameters and any(isfinite(value) for _, value in s.rows)
        )
        self._strict, self._options = strict, options
        self._history = _as_history(self._studies)  # what is wrong with it is said at once
        if self._history is None:
            alone = "the library alone" if options.get("library") else "a cold start"
            LOGGER.warning(
                "the past has no completed trial with parameters and a finite value: %s", alone
            )

    @cached_property
    def prior(self) -> Prior | None:
        """What all of them teach."""
        return self._learned(self._studies)

    @property
    def guesses_scale(self) -> bool:
        """Whether nobody said if the values are learned as logarithms."""
        return self._options.get("log_output") is None and not self._options.get("library")

    @cached_property
    def without_logarithms(self) -> SourceStudies:
        """The same studies, learned as they are."""
        options = {**self._options, "log_output": False}
        return SourceStudies(self._studies, strict=self._strict, **options)

    def prior_for(self, study: Study) -> Prior | None:
        """What the other studies teach: a study that is resumed is not its own past.

        Learned by one of its workers, and shared through its storage.
        """
        others = self.others(study)
        if len(others) < len(self._studies):
            LOGGER.info(
                "study %r is in the source of its own past: learned from the other %d studies",
                study.study_name,
                len(others),
            )
        mark, alone = self._mark(others), isinstance(study._storage, InMemoryStorage)
        stored = None if alone else read_prior(study, mark)
        if stored is not None:
            return stored
        begun = time.perf_counter()
        prior = self.prior if len(others) == len(self._studies) else self._learned(others)
        if alone:
            return prior
        if _head(study).get("mark") == mark:
            return read_prior(study, mark) or prior  # of another that was faster
        worth = time.perf_counter() - begun >= WORTH
        write_prior(study, mark, prior if worth else None)
        return prior

    def wait(self, study: Study, trial: FrozenTrial) -> None:
        """Return once a worker has learned from this past, or none is about to."""
        if isinstance(study._storage, InMemoryStorage):
            return  # threads of one process take turns
        mark = self._mark(self.others(study))
        while _head(study).get("mark") != mark:
            if not running(study.get_trials(deepcopy=False), trial.number).choosing:
                return
            time.sleep(LOOK)

    def _mark(self, studies: Sequence[RecordedStudy]) -> str:
        """The same for the same past, however it was read."""
        found = [
            (
                (s.study_name, s.minimize, s.metric, sorted(map(repr, s.parameters))),
                [(sorted(params.items()), value) for params, value in s.rows],
                [sorted(limits.items()) for limits in s.constraints],
                *([s.curves] if s.pruned else ()),
            )
            for s in studies
        ]
        return sha256(
            repr((found, self._strict, sorted(self._options.items()))).encode()
        ).hexdigest()[:16]

    def calibration(self, study: Study) -> RegretCalibration | None:
        """What replays on the studies say of the regret; this takes some seconds."""
        others = self.others(study)
        if not others:
            return None
        LOGGER.info("replaying the sampler on %d past studies, for a certificate", len(others))
        past = History.from_optuna(others)
        return learn_prior(past, **self._options, certify="folds").certificate

    def others(self, study: Study) -> tuple[RecordedStudy, ...]:
        """All that teach but the study itself."""
        return tuple(record for record in self._studies if not record.is_of(study))

    def _learned(self, studies: Sequence[RecordedStudy]) -> Prior | None:
        past = self._history if studies is self._studies else _as_history(studies)
        if past is None:
            return None
        prior = learn_prior(past, **self._options, certify="none")
        for note in prior.info.notes:
            LOGGER.info("past studies: %s", note)
        if not prior.helps:
            LOGGER.info("held-out studies are not predicted better with the others: a cold start")
        return with_constraints(prior, studies) if self._strict else prior


def _as_history(studies: Sequence[RecordedStudy]) -> History | None:
    """None where there is nothing to learn from."""
    return History.from_optuna(studies) if studies else None


def with_constraints(prior: Prior, studies: Sequence[RecordedStudy]) -> Prior:
    """The prior with records of the constraints that all completed trials of the past have."""
    rows = [c for study in studies for c in study.constraints]
    names = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
    if not names:
        raise InputError(
            "strict: the past studies have no constraint that all their completed trials report; "
            "expected values by trial.set_constraint or constraints_func"
        )
    # Promises rest on what was measured.
    studies = [replace(study, curves=()) for study in studies]
    histories = {OBJECTIVE: History.from_optuna(studies)}
    for name in names:
        histories[name] = History.from_optuna([_of_constraint(study, name) for study in studies])
    return replace(prior, past=learn_outputs(histories))


def _of_constraint(study: RecordedStudy, name: str) -> RecordedStudy:
    """The study as if a constraint were its value."""
    pairs = zip(study.rows, study.constraints, strict=True)
    rows = tuple((params, float(values[name])) for (params, _), values in pairs)
    return replace(study, rows=rows, minimize=False)


# What workers share


def read_prior(study: Study, mark: str) -> Prior | None:
    """What `write_prior` wrote; None where it wrote nothing, another past, or not all of it yet."""
    head = _head(study)
    if head.get("mark") != mark or not head["parts"]:
        return None
    attributes = study._storage.get_study_system_attrs(study._study_id)
    text = "".join(str(attributes.get(f"{KEY}:{i}")) for i in range(head["parts"]))
    if sha256(text.encode()).hexdigest() != head["digest"]:
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


def _head(study: Study) -> Mapping[str, Any]:
    return dict(study._storage.get_study_system_attrs(study._study_id).get(KEY, {}))
