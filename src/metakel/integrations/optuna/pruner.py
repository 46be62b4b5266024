"""`MetaKelPruner`: stops trials that would not have become the best, by curves of the past."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from optuna.pruners import BasePruner
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from metakel import library
from metakel.curves import CurveModel, check_risk, from_one
from metakel.errors import InputError

LOGGER = logging.getLogger("metakel")


class MetaKelPruner(BasePruner):
    """Prune trials by what finished studies say of how learning curves go on.

    With probability at least 1 - delta over studies like the past ones, the best trial of the study
    is not pruned (``docs/guide/curves.md``). Where the past has too few studies to vouch, or where
    the curves of the study contradict it, nothing is pruned, and that is logged once. It works
    beside any sampler.

    Parameters
    ----------
    source_studies : sequence of Study, optional
        Finished studies whose trials reported intermediate values.
    model : CurveModel, str or Path, optional
        Learned before (`metakel.curves.CurveModel.learn`), its path, or the name of a model in
        `metakel.library`, such as "lightgbm"; instead of source_studies.
    n_steps : int, optional
        How many steps a whole trial reports; by default as usual in the past, or as the longest
        trial of the study before it.
    delta : float
        Probability with which the best trial of a study may be pruned.
    tolerance : float
        A trial counts as the best if it is better than the others by more than this, in units of
        the spread of first values.

    Examples
    --------
    >>> import optuna
    >>> from metakel.integrations.optuna import MetaKelPruner
    >>> study = optuna.create_study(pruner=MetaKelPruner(model="lightgbm", n_steps=100))
    """

    def __init__(
        self,
        source_studies: Sequence[Study] | None = None,
        *,
        model: CurveModel | str | Path | None = None,
        n_steps: int | None = None,
        delta: float = 0.05,
        tolerance: float = 0.0,
    ) -> None:
        if (source_studies is None) == (model is None):
            raise InputError("expected either source_studies or model")
        check_risk(delta, tolerance)
        if source_studies is not None:
            model = _learned(source_studies, delta, tolerance)
        elif not isinstance(model, CurveModel):
            model = library.as_curves(model).at(delta, tolerance)
        self.model, self._n_steps = model, n_steps
        self._said: set[str] = set()

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether to stop the trial now."""
        model = self.model
        if model is None or not trial.intermediate_values:
            return False
        goal = study.direction == StudyDirection.MINIMIZE
        model.check_goal(goal, f"study {study.study_name!r}")
        states = (TrialState.COMPLETE, TrialState.PRUNED)
        trials = study.get_trials(deepcopy=False, states=states)
        before = [t for t in trials if t.number < trial.number]
        earlier = [from_one(t.intermediate_values) for t in before]
        made = [max(curve, default=0) for curve in earlier]
        steps = self._n_steps or max(model.steps, *made, 0)
        found = model.decide(from_one(trial.intermediate_values), earlier, steps)
        if found.never:
            self._say(study, found.reason)
        elif sum(t.state == TrialState.COMPLETE for t in before) > 1 and max(made) < steps:
            self._say(study, f"no trial made {steps} steps; n_steps= says how many a whole one has")
        if found.stop:
            LOGGER.info("trial %d is pruned: %s", trial.number, found.reason)
        return found.stop

    def _say(self, study: Study, reason: str) -> None:
        """Why nothing is pruned, once."""
        if reason not in self._said:
            LOGGER.warning("study %r: nothing is pruned, as %s", study.study_name, reason)
        self._said.add(reason)


def curves_of(study: Study) -> CurveModel | None:
    """How runs of the study go on, by its pruner; None where that does not say it."""
    pruner = study.pruner
    model = pruner.model if isinstance(pruner, MetaKelPruner) else None
    usable = model is not None and model.minimize == (study.direction == StudyDirection.MINIMIZE)
    return model if usable else None


def _learned(studies: Sequence[Study], delta: float, tolerance: float) -> CurveModel | None:
    """From the completed trials of studies; None, with a word, where they have no curves."""
    directions = {study.direction for study in studies}
    if len(directions) > 1:
        raise InputError("source_studies minimise and maximise; expected one direction")
    tasks = []
    for study in studies:
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        tasks.append([from_one(t.intermediate_values) for t in trials if t.intermediate_values])
    minimize = directions == {StudyDirection.MINIMIZE}
    try:
        return CurveModel.learn(tasks, minimize=minimize, delta=delta, tolerance=tolerance)
    except InputError as error:
        LOGGER.warning("nothing is pruned: %s", error)
        return None
