"""MetaKelSampler: translates between Optuna's record and `Prior.optimizer`, and decides nothing.

Also the callback that stops its study once the best trial is certified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.samplers._base import _process_constraints_after_trial
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from metakel._arrays import probability
from metakel.confidence import Alarm
from metakel.errors import InputError
from metakel.integrations.optuna.pruner import curves_of
from metakel.integrations.optuna.record import (
    Made,
    attempted,
    check_unchanged,
    chosen,
    finished_trials,
    handed_out,
    narrowed,
    nearest_value,
    read_choice,
    running,
    write_choice,
    write_expectation,
)
from metakel.integrations.optuna.sources import LOGGER, SourceStudies
from metakel.integrations.optuna.study_replay import (
    SamplerCache,
    Strict,
    StudyReplay,
    held_values,
    varying,
)
from metakel.library import ENTRIES, as_prior, spelled
from metakel.optimize import Certificate, Trial
from metakel.optimize.certificate import as_tolerance
from metakel.priors import Prior, cold_prior
from metakel.space import Space

# How often a choice is made again because another worker made nearly the same one meanwhile.
ATTEMPTS = 5


class MetaKelSampler(BaseSampler):
    """Optuna sampler that starts from what finished studies have in common.

    It has no random start-up: the first trial already tries what did best in the past. How far
    the past is trusted is decided by the values of the new study (`trust`).

    Parameters
    ----------
    source_studies : studies, a storage or its URL, or Studies
        Finished studies of the same kind. `Studies` names some of a storage, filters them or
        renames their parameters. Those that do not fit the others (several objectives, another
        direction, other parameters) are left out with a warning each; ``skipped`` lists them.
        Learned from are the
        parameters that all completed trials have, or those of most studies. Where
        there is nothing to learn from, or the new study has none of these parameters,
        ``independent_sampler`` does everything. The new study itself may be among them, as in a
        storage when it is resumed; it is left out.
    prior : Prior, optional
        Learned before, by `metakel.learn_prior` or ``Prior.load``; instead of source_studies. Also
        its path, or the name of a model in `metakel.library`, such as "lightgbm" or
        "library:lightgbm:auc". Without a metric that is log_loss, and auc for a study that
        maximises. Parameters may be spelled as the model's own interface does ("eta"). With
        source_studies, a name of the library joins them (`metakel.learn_prior`).
    seed : int, optional
        Of the search for the next configuration. By default it follows from the name of the study,
        so that all workers on a study search alike and foresee each other's choices.
    independent_sampler : BaseSampler, optional
        For parameters that only some trials have or whose range changes, and in the first trial
        for those that the prior does not know; TPESampler by default.
    constraints_func : callable, optional
        Takes a finished trial and returns a sequence of numbers; those above 0 are violated
        constraints. As in other samplers of Optuna; ``trial.set_constraint`` in the objective does
        the same.
    strict : bool
        Whether constraints are limits that no trial may violate: with probability 1 - ``delta``
        all configurations that are ever chosen respect them. It decides by confidence bounds of
        the constraints of the source studies, not by the prior; where none is known to be safe, it
        raises `safe.NoSafePoint`, and after values that contradict the past `metakel.Alarm`.
        The study needs the parameters of the past, within their ranges. See
        ``docs/guide/safe-search.md``.
        A ``prior`` has to bring records of the constraints (`metakel.priors.learn_outputs`).
    output_range : pair of float, optional
        Limits between which all values lie: (0, 1) for an accuracy. What is said of trials and
        certificates keeps to them. Guessed by the name of the metric, if the source studies have
        one (``study.set_metric_names``).
    log_output : bool, optional
        Whether to learn logarithms of the values of the source studies (`metakel.learn_prior`).
    start : sequence of dict, optional
        With ``strict``: configurations that you vouch for. Without them past studies have to, of
        which half teach and at least 19 of the others vouch at the default ``delta``.
    delta : float
        Of ``strict``.
    sums : sequence of str, optional
        Sums of parameters that every trial keeps, as in ``"a + b + c = 1"`` or
        ``"layers + 2 heads <= 16"``. All parameters of a sum are suggested in every trial, with
        their whole ranges. By default those that hold in all past trials; an empty list for none.
    """

    def __init__(
        self,
        source_studies: Any = None,
        *,
        prior: Prior | str | Path | None = None,
        seed: int | None = None,
        independent_sampler: BaseSampler | None = None,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        output_range: tuple[float, float] | None = None,
        log_output: bool | None = None,
        strict: bool = False,
        start: Sequence[Mapping[str, Any]] | None = None,
        delta: float = 0.1,
        sums: Sequence[str] | None = None,
    ) -> None:
        library = str(prior) if isinstance(prior, str) and source_studies is not None else None
        if library is not None and library.removeprefix("library:").partition(":")[0] in ENTRIES:
            prior = None
        elif source_studies is not None and prior is not None:
            raise InputError(
                "source_studies and prior are two ways to say the same; give one, or "
                "source_studies and the name of a model in metakel.library"
            )
        self._named = ""
        said = library or prior
        if said is not None and not isinstance(said, Prior):
            name = str(said).removeprefix("library:")
            self._named = name if name in ENTRIES else ""
            said = as_prior(f"library:{name}" if self._named or library else said)
        if start is not None and not strict:
            raise InputError("start is given without strict=True; expected both")
        self._strict = Strict(delta, tuple(start or ())) if strict else None
        self._past = None
        if source_studies is not None:
            self._past = SourceStudies(
                source_studies,
                strict=strict,
                output_range=output_range,
                log_output=log_output,
                library=library,
            )
        elif output_range is not None or log_output is not None:
            raise InputError(
                "output_range, log_output: they are learned; a prior has its own range"
            )
        self._sums, self._seed = None if sums is None else tuple(sums), seed
        self._alone = self._summing(said)  # what decides without source studies
        # What these taught, and what decides: the same over configurations that keep the sums.
        self._taught: tuple[Prior | None, Prior | None] | None = None
        if strict:
            self.prior  # noqa: B018, what cannot be promised is refused at once
        self._independent = independent_sampler or TPESampler(seed=seed)
        self._constraints_func = constraints_func
        self._cache = SamplerCache()

    @property
    def prior(self) -> Prior | None:
        """What decides; source studies teach it when it is first needed."""
        if self._past is None:
            return self._alone
        return self._taught[1] if self._taught else self._use(self._past.prior or self._alone)

    def _use(self, learned: Prior | None) -> Prior | None:
        if self._taught is None or learned is not self._taught[0]:
            self._taught = learned, self._summing(learned)
        return self._taught[1]

    @property
    def skipped(self) -> tuple[str, ...]:
        """Which source studies were left out, and why."""
        return () if self._past is None else tuple(self._past.skipped)

    def _summing(self, prior: Prior | None) -> Prior | None:
        """The prior over configurations that keep the sums."""
        if prior is None or self._sums is None:
            return prior
        space = prior.space if self._sums else replace(prior.space, sums=())
        return replace(prior, space=space.summing(self._sums))

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Parameters of all completed trials that the prior can choose; none before the first."""
        self._raise_error_if_multi_objective(study)
        prior, common, space = self._prior_for(study), {}, None
        if prior is not None:
            common = self._cache.begin(study, trial)
            space = chosen(common, prior.space)
            if common:
                host = type(self._independent).__name__
                self._cache.log_parameters(study, prior, common, host)
        if prior is None or (common and space is None):
            if self._strict is not None:
                raise InputError(
                    "strict: the past says nothing of the parameters of this study, so nothing can "
                    "be promised; expected source studies, or a prior, with these parameters"
                )
            return self._independent.infer_relative_search_space(study, trial)
        names = () if space is None else space.names
        return {name: common[name] for name in names if name in common}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The next configuration, announced to the other workers.

        Before the first completed trial nobody knows the parameters of the study. The whole
        configuration is announced then, and `sample_independent` hands it out.
        """
        self._raise_error_if_multi_objective(study)
        prior = self._scaled(study)
        space = None if prior is None else chosen(search_space, prior.space)
        if prior is None or (search_space and space is None):
            return self._independent.sample_relative(study, trial, search_space)
        with self._cache.lock:
            trials = self._cache.take(study, trial)
            if space is not None:
                choice = self._choose(prior, study, trial, trials, space)
                # Conditional parameters are handed out when the objective asks for them.
                return {name: value for name, value in choice.items() if name in search_space}
            if not any(t.state == TrialState.COMPLETE for t in trials):
                known = {name: d for t in trials for name, d in t.distributions.items()}
                self._choose(prior, study, trial, trials, narrowed(varying(prior), known))
            elif space := chosen(self._cache.common(study), prior.space):
                # The first trial was completed after the host had asked for the search space.
                self._choose(prior, study, trial, trials, space)
            return {}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """What was announced for the trial, or else what the independent sampler says."""
        self._raise_error_if_multi_objective(study)
        prior = self._prior_for(study)
        announced = read_choice(trial.system_attrs) if prior is not None else {}
        own = param_name
        if prior is not None and prior.info.model and own not in announced:
            own = ENTRIES[prior.info.model].spelled(own)
        if prior is not None and own in announced:
            value = announced[own]
            try:
                near = nearest_value(own, value, param_distribution, prior.space)
            except InputError:  # another parameter of the same name
                pass
            else:
                if self._strict is not None:
                    check_unchanged(param_name, value, near)
                given = handed_out(trial, prior.space)
                if near == value and all(given[n] == announced.get(n, given[n]) for n in given):
                    return value
                # The range is not that of the past, or a parameter has one value only, which the
                # host hands out. The best point then need not have the others of the best of all.
                with self._cache.lock:
                    again = self._choose_within(prior, study, trial, own, param_distribution)
                return nearest_value(own, again.get(own, near), param_distribution, prior.space)
        if self._strict is not None and not param_distribution.single():
            raise InputError(
                f"strict: parameter {param_name!r} is not what all past studies had by this name; "
                "nothing can be promised then"
            )
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def trust(self, study: Study) -> float:
        """The weight of the past against a cold start, given the values of this study so far.

        0 where nothing was learned, where held-out source studies say that it does not help, or
        where the study has no parameter that the past knows.
        """
        prior = self._prior_for(study)
        if prior is None:
            return 0.0
        _check_direction(study, prior)
        trials = study.get_trials(deepcopy=False)
        common = self._cache.common(study)
        space = chosen(common, prior.space)
        if common and space is None:
            return 0.0
        space = space or varying(prior)
        with self._cache.lock:
            record = self._finished(prior, study, trials)
            return self._replay(prior, study, record, space).given(record).trust

    def certificate(
        self, study: Study, *, delta: float = 0.2, trials: Sequence[FrozenTrial] | None = None
    ) -> Certificate:
        """How far the best trial of a study can be from the optimum.

        It rests on replays of this sampler on the source studies, which the first call makes; that
        takes some seconds. A ``prior`` has to bring them (``learn_prior`` with its default
        ``certify``). It is about studies like these, over the search space of the past, with trials
        that this sampler chose one after the other.

        Parameters
        ----------
        study : Study
        delta : float
            Probability with which it may fail; with ``strict`` it is that of the sampler, and
            the certificate is about configurations that respect the constraints.
        trials : sequence of FrozenTrial, optional
            By default all of the study.
        """
        prior = self._prior_for(study) if self._strict else self._certified_prior(study)
        if prior is None:
            return Certificate(inf, delta=delta, reason="nothing was learned from the past")
        _check_direction(study, prior)
        with self._cache.lock:
            found = study.get_trials(deepcopy=False) if trials is None else trials
            record = self._finished(prior, study, found)
            space = chosen(self._cache.common(study), prior.space) or varying(prior)
            own = delta if self._strict is None else None
            reason = "" if own is None else _unlike_the_past(space, varying(prior), record)
            if reason:
                return Certificate(inf, delta=delta, reason=reason)
            return self._replay(prior, study, record, space, own).given(record).certificate()

    def _certified_prior(self, study: Study) -> Prior | None:
        prior, past = self._scaled(study), self._past_of(study)
        if prior is None or past is None:
            return prior
        with self._cache.lock:
            return self._cache.kept(
                "certified",
                prior,
                make=lambda: replace(prior, certificate=past.calibration(study)),
            )

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Refuse a study of another direction than the past, before anything is spent on it."""
        self._raise_error_if_multi_objective(study)
        past = self._past_of(study)
        if past is not None and not self._cache.knows(study):
            past.wait(study, trial)  # for another worker that learns
        prior = self._prior_for(study)
        if prior is not None:
            _check_direction(study, prior)
        self._independent.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Note what ``constraints_func`` says of the trial."""
        if self._constraints_func is not None:
            _process_constraints_after_trial(self._constraints_func, study, trial, state)
        self._independent.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Other random numbers from here on; Optuna asks for it where trials run in parallel.

        The search takes those of the study, which all its workers share.
        """
        with self._cache.lock:
            self._seed = None
            self._independent.reseed_rng()

    def _prior_for(self, study: Study) -> Prior | None:
        """What was learned, without the study itself where it was among the sources."""
        past = self._past_of(study)
        if past is not None:
            with self._cache.lock:
                return self._use(self._cache.learned(study, past))
        prior = self._as_in(study)
        if prior is None or not self._cache.below_zero(study):
            return prior
        space, info = prior.space, prior.info
        return self._cache.kept(
            "cold", prior, make=lambda: cold_prior(space, info.output, minimize=info.minimize)
        )

    def _scaled(self, study: Study) -> Prior | None:
        """What was learned, without logarithms where a guess of them turns out to be wrong.

        Of a prior that was given, which cannot be learned again, a cold start is left.
        """
        prior, past = self._prior_for(study), self._past_of(study)
        if prior is None or not prior.scale.log:
            return prior
        if not (past.guesses_scale if past is not None else not prior.info.model):
            return prior
        with self._cache.lock:
            self._cache.look_below_zero(study)
        return self._prior_for(study)

    def _past_of(self, study: Study) -> SourceStudies | None:
        """What teaches; None where the prior that was given decides alone."""
        past = self._past
        if past is None or (self._alone and not past.others(study)):
            return None
        return past.without_logarithms if self._cache.below_zero(study) else past

    def _as_in(self, study: Study) -> Prior | None:
        """A prior of the library in the direction and with the names of the study."""
        prior = self._alone
        if prior is None or not prior.info.model:
            return prior
        with self._cache.lock:
            if self._named and study.direction == StudyDirection.MAXIMIZE:
                prior = self._summing(as_prior(f"library:{self._named}:auc")) or prior
            names = tuple(self._cache.common(study))
            return self._cache.kept("spelled", prior, names, make=lambda: spelled(prior, names))

    def _replay(
        self,
        prior: Prior,
        study: Study,
        record: list[Trial],
        space: Space,
        delta: float | None = None,
    ) -> StudyReplay:
        """The replay of the last trial, if it will do, or a new one."""
        seed = self._seed
        if seed is None:
            seed = int.from_bytes(sha256(study.study_name.encode()).digest()[:8])
        held = {} if self._strict is not None else held_values(prior, space, record)
        return self._cache.last(
            ("replay", delta is None),  # one that chooses, and one that certifies
            (study.study_name, prior, space, held, seed, delta),
            lambda: StudyReplay(prior, space, held, seed, delta, self._strict),
        )

    def _finished(
        self, prior: Prior, study: Study, trials: Sequence[FrozenTrial], made: Made | None = None
    ) -> list[Trial]:
        goal, curves = prior.info.minimize, curves_of(study)
        return finished_trials(trials, minimize=goal, made=made, curves=curves)

    def _choose_within(
        self,
        prior: Prior,
        study: Study,
        trial: FrozenTrial,
        name: str,
        distribution: BaseDistribution,
    ) -> dict[str, Any]:
        """Choose again, now that the range of a parameter is known; what was handed out stays."""
        trials = self._cache.read(study, trial.number)
        known = {n: d for t in trials for n, d in t.distributions.items()}
        space = narrowed(varying(prior), {**known, **trial.distributions, name: distribution})
        given = handed_out(trial, prior.space)
        given.pop(name, None)
        return self._choose(prior, study, trial, trials, space, given)

    def _choose(
        self,
        prior: Prior,
        study: Study,
        trial: FrozenTrial,
        trials: list[FrozenTrial],
        space: Space,
        fixed: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Choose given what is finished and running, and announce it to the other workers.

        An earlier trial that has announced nothing yet is taken to make the choice that this
        sampler would make for it, and later trials do the same with this one. Where another worker
        announced nearly the same all the same, as it knew of other results, both choose again; the
        later trial leaves the best to the other.
        """
        choice: dict[str, Any] = {}
        own, rivals = trial.number, set[int]()
        for _ in range(ATTEMPTS):
            record = self._finished(prior, study, trials, self._cache.made)
            others = running(trials, own)
            if rivals:
                again = sum(number < own for number in rivals & others.announced.keys())
                # As if so many more, numbered after all others, had chosen before this one.
                last = trials[-1].number
                more = range(last + 1, last + 1 + again)
                others = replace(others, choosing=(*others.choosing, *more))
            else:
                others = others.before(own)
            replay = self._replay(prior, study, record, space)
            try:
                optimizer = replay.given(record, others)
                choice = replay.suggest(optimizer, fixed)
            except Alarm as alarm:
                raise Alarm(
                    f"strict: {alarm}".partition(". Nothing is asked for")[0]
                    + ". Nothing more is tried. Find out why; then go on with other source "
                    "studies, or without strict"
                ) from None
            self._cache.log_alarm(study, optimizer)
            write_choice(study, trial, choice)
            if not any(t.state == TrialState.RUNNING and t.number != own for t in trials):
                break  # who began since then knows of this trial, and no more than it
            trials = self._cache.read(study, own)
            known = {**others.announced, **{t.number: t.point for t in record}}
            meanwhile = {t.number: attempted(t) for t in trials if t.number != own}
            news = {n: params for n, params in meanwhile.items() if params != known.get(n)}
            rivals = replay.near(choice, news)
            if not rivals:
                break
        enqueued = trial.system_attrs.get("fixed_params", {})
        if not enqueued.keys() & choice.keys():  # or something else will be tried
            write_expectation(study, trial, optimizer, choice)
        return choice

    def __repr__(self) -> str:
        return f"{type(self).__name__}(prior={self.prior!r}, seed={self._seed})"


def _unlike_the_past(space: Space, past: Space, record: Sequence[Trial]) -> str:
    """Why past studies say nothing of the regret; empty where they may."""
    other = sorted(set(space.parameters) ^ set(past.parameters), key=lambda p: p.name)
    if other:
        names = dict.fromkeys(p.name for p in other)
        return f"the search space is not that of the past studies: {', '.join(names)} differ"
    if any(trial.note.reason == "pruned" for trial in record):
        return "some trials were pruned, and past studies were replayed without pruning"
    return ""


def _check_direction(study: Study, prior: Prior) -> None:
    if (study.direction == StudyDirection.MINIMIZE) != prior.info.minimize:
        words = ("minimised", "maximises") if prior.info.minimize else ("maximised", "minimises")
        raise InputError(
            f"the past was {words[0]} but study {study.study_name!r} {words[1]}; values must mean "
            "the same in both, so create the study with the direction of the past"
        )


# Stopping

CERTIFICATE = "metakel:certificate"  # a user attribute of the study


class StopAtCallback:
    """Callback that stops a study of a `MetaKelSampler` once the regret is small enough.

    ``study.optimize(objective, n_trials=100, callbacks=[StopAtCallback("1%")])``. The certificate
    is logged, and noted as the user attribute ``metakel:certificate`` of the study. Where there can
    be none, a warning says why, and the study goes on.

    Parameters
    ----------
    stop_at : float or str
        The regret at which to stop, in units of the objective, or as in "1%" of the usual spread
        of a past study.
    delta : float
        Probability with which the certificate may fail.
    """

    def __init__(self, stop_at: float | str, *, delta: float = 0.2) -> None:
        if not isinstance(stop_at, str) or not stop_at.strip().endswith("%"):
            as_tolerance(stop_at, None)
        probability("delta", delta)
        self.stop_at, self.delta = stop_at, delta
        self._warned: set[str] = set()

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """After a trial of the study."""
        if not isinstance(study.sampler, MetaKelSampler):
            raise InputError(
                f"study {study.study_name!r} has a {type(study.sampler).__name__}; expected a "
                "MetaKelSampler, as certificates are about its choices"
            )
        certificate = study.sampler.certificate(study, delta=self.delta)
        why = certificate.reason and str(certificate)
        if outlook := not why and certificate.outlook(self.stop_at):
            why = f"stop_at={self.stop_at} will not stop it: {outlook}"
        if why:
            if why not in self._warned:
                LOGGER.warning("study %r: %s", study.study_name, why)
            self._warned.add(why)
        elif reached := certificate.reached(self.stop_at):
            LOGGER.info("study %r stops: %s", study.study_name, reached)
            study.set_user_attr(CERTIFICATE, str(certificate))
            study.stop()
