"""Between a search of scikit-learn and a space: distributions and spellings."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil, floor, inf, isfinite, nan, prod
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone

from metakel._arrays import is_number
from metakel.errors import InputError, first_of
from metakel.library import ENTRIES, Entry
from metakel.optimize import Optimizer
from metakel.priors import Prior
from metakel.search import SearchSpace
from metakel.space import Categorical, Fixed, Float, Integer, Parameter, Space

LOGGER = logging.getLogger("metakel")
TAIL = 0.005  # of a distribution without ends, on either side
CHOICES = (str, bool, int, float)
MOST, DRAWN = 4096, 512  # configurations that are all looked at, and that are drawn otherwise
DEVIATIONS = 1.5


def model_in(estimator: Any) -> tuple[str, Entry] | None:
    """The prefix of parameters and the entry of the library for a model, also in a pipeline."""
    name = type(estimator).__name__
    for entry in ENTRIES.values():
        if name in entry.estimators:
            return "", entry
    for step, inner in _inside(estimator):
        found = model_in(inner)
        if found is not None:
            return f"{step}__{found[0]}", found[1]
    return None


def model_name(estimator: Any) -> str:
    """What a history calls a model: its class, of a pipeline that of its last step."""
    name = type(estimator).__name__
    for _, inner in _inside(estimator):
        return model_name(inner) if hasattr(estimator, "steps") else f"{name}({model_name(inner)})"
    return name


def _inside(estimator: Any) -> list[tuple[str, Any]]:
    """The last step of a pipeline, or the model that another one wraps."""
    steps = getattr(estimator, "steps", None)
    if isinstance(steps, list) and steps:
        return [steps[-1]]
    for name in ("regressor", "estimator", "base_estimator"):
        inner = getattr(estimator, name, None)
        if inner is not None and hasattr(inner, "get_params"):
            return [(name, inner)]
    return []


def features_are_sparse(estimator: Any, X: Any, y: Any) -> bool:
    """Whether the model gets sparse features, by the steps before it where that is of interest."""
    found = model_in(estimator)
    if found is None or not found[1].dense:
        return bool(issparse(X))
    for _, inner in _inside(estimator):
        if len(getattr(estimator, "steps", ())) > 1:
            with contextlib.suppress(Exception):  # of others; the search meets it again
                X = clone(estimator[:-1]).fit_transform(X, y)
        return features_are_sparse(inner, X, y)
    return bool(issparse(X))


@dataclass(frozen=True)
class Choice:
    """One parameter of a search: how it is searched, and the values that are really set."""

    parameter: Parameter
    values: Mapping[str, Any] = field(default_factory=dict)  # by the labels of choices
    numbers: tuple[float, ...] = ()  # the only ones that are possible

    @property
    def places(self) -> dict[float, float]:
        """The numbers of a list by where the optimizer has them: at an end of its range at most."""
        low, high = getattr(self.parameter, "low", -inf), getattr(self.parameter, "high", inf)
        return {min(max(number, low), high): number for number in self.numbers}

    def value(self, found: Any) -> Any:
        """What is set on the estimator."""
        if isinstance(found, str):
            return self.values.get(found, found)
        return self.places.get(found, found) if self.numbers else found

    def nearest(self, found: Any) -> Any:
        """The place of a number of the list next to one of the range."""
        if not self.numbers or not is_number(found):
            return found
        return min(self.places, key=lambda place: abs(place - found))

    @property
    def possible(self) -> Sequence[Any] | None:
        """All values of the optimizer; None where they are not counted."""
        if self.numbers:
            return [*self.places]
        if isinstance(self.parameter, Fixed):
            return (self.parameter.value,)
        if isinstance(self.parameter, Integer) and self.parameter.step in (None, 1):
            return range(int(self.parameter.low), int(self.parameter.high) + 1)
        return self.parameter.choices or None


def as_choice(name: str, given: Any) -> Choice:
    """From a distribution of scipy, a list, or a parameter of a `Space`."""
    if isinstance(given, Parameter):
        return Choice(given)
    given = getattr(given, "xk", given)  # the values of a `rv_discrete`
    if hasattr(given, "rvs"):
        return Choice(_from_distribution(name, given))
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        found = repr(given) if isinstance(given, CHOICES) else f"a {type(given).__name__}"
        raise InputError(
            f"param_space has {found} for {name!r}; expected a distribution of scipy.stats, a "
            "list of values, or a parameter such as Float(name, low, high)"
        )
    values = [v.item() if isinstance(v, np.generic) else v for v in given]
    if not values:
        raise InputError(f"param_space has no value for {name!r}; expected one at least")
    if len(values) == 1:
        return Choice(Fixed(name, _label(values[0])), _labels(values))
    if all(is_number(v) for v in values):
        return _numbers(name, sorted(set(values)))
    return Choice(Categorical(name, tuple(_label(v) for v in values)), _labels(values))


def _numbers(name: str, values: list[Any]) -> Choice:
    whole = all(isinstance(v, int) for v in values)
    log = values[0] > 0 and values[-1] / values[0] >= 30
    kind = Integer if whole else Float
    return Choice(kind(name, values[0], values[-1], log=log), numbers=tuple(values))


def _label(value: Any) -> Any:
    if value is None:
        return "none"
    return value if isinstance(value, CHOICES) and not isinstance(value, float) else repr(value)


def _labels(values: Sequence[Any]) -> dict[str, Any]:
    return {_label(v): v for v in values if isinstance(_label(v), str)}


def _from_distribution(name: str, given: Any) -> Parameter:
    if not (hasattr(given, "support") and hasattr(given, "ppf")):
        raise InputError(
            f"param_space has {type(given).__name__} for {name!r}, which tells no range; expected "
            "a distribution of scipy.stats, a list of values, or a parameter such as "
            "Float(name, low, high)"
        )
    law = getattr(given, "dist", given)
    kind = getattr(law, "name", "")
    low, high = (float(end) for end in given.support())
    if not (isfinite(low) and isfinite(high)):
        low, high = (float(given.ppf(q)) for q in (TAIL, 1 - TAIL))
    if hasattr(law, "pmf"):
        return Integer(name, int(low), int(high)) if low < high else Fixed(name, int(low))
    log = kind in ("loguniform", "reciprocal", "lognorm")
    return Float(name, low, high, log=log) if low < high else Fixed(name, low)


@dataclass(frozen=True)
class Searched:
    """How configurations of an optimizer become parameters of an estimator, and back."""

    choices: Mapping[str, Choice]  # by the names that the optimizer knows
    names: Mapping[str, str]  # of the estimator's parameters, by those that the optimizer knows
    held: Mapping[str, Any]  # what the optimizer holds at a value
    always: Mapping[str, Any]  # parameters of the estimator of which there is one value only
    prefix: str = ""  # of the parameters of the model
    entry: Entry | None = None  # of the library
    # What a fit sets beside the parameters (`Entry.beside`).
    constants: Mapping[str, Any] = field(default_factory=dict)

    def settled(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration that is really tried, where lists leave no others."""
        return {
            name: self.choices[name].nearest(value) if name in self.choices else value
            for name, value in configuration.items()
        }

    def arguments(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters for ``estimator.set_params``."""
        known, others = {}, {}
        for name, value in configuration.items():
            if name in self.held or name not in self.names:
                continue
            set_to = self.choices[name].value(value)
            if self.entry is not None and name in self.entry.parameters:
                known[name] = set_to
            else:
                others[self.names[name]] = set_to
        others = {**others, **self.always}
        if self.entry is None:
            return others
        found = self.entry.arguments(known)
        if known:
            found = {**self.constants, **found}
        by_name = {self.names.get(name, f"{self.prefix}{name}"): v for name, v in found.items()}
        return {**by_name, **others}


OWN = "own "  # before the name of a parameter that the prior knows with other values


def searched_with(
    prior: Prior,
    entry: Entry,
    prefix: str,
    given: Mapping[str, Choice] | None,
    always: Mapping[str, Any],
    estimator: Any,
    *,
    sparse: bool,
) -> tuple[Searched, Space, tuple[Parameter, ...]]:
    """A search with a prior of the library: its space, and parameters that the prior lacks."""
    known = {name: prior.space[name] for name in prior.space.free}
    estimator = clone(estimator).set_params(**always)
    if given is None:
        set_to = estimator.get_params()
        idle = [
            name
            for name, (argument, value) in entry.needs.items()
            if set_to.get(f"{prefix}{argument}", value) != value
        ]
        idle += entry.dense if sparse else ()
        given = {f"{prefix}{name}": Choice(p) for name, p in known.items() if name not in idle}
        _say_what_was_set(estimator, prefix, entry, [name for name in known if name not in idle])
    choices, names, new = {}, {}, []
    for name, choice in given.items():
        own = entry.spelled(name) if name.startswith(prefix) else name
        both = own in known and own not in choices
        parameter = within(known[own], choice.parameter) if both else None
        placed = replace(choice, parameter=parameter or choice.parameter)
        # None, too, where the range of the prior cannot tell the numbers of a list apart.
        if parameter is None or len(placed.places) < len(choice.numbers):
            own = f"{OWN}{name}" if name in prior.space.names else name
            parameter = replace(choice.parameter, name=own)  # type: ignore[type-var]
            new.append(parameter)
        choices[own], names[own] = replace(choice, parameter=parameter), name
    present = {n: held_value(estimator, prefix, entry, known[n]) for n in known if n not in choices}
    # One with a condition has its value where it is there: holding it would hold its parent, too.
    conditional = {c.name for c in prior.space.conditions}
    held = {name: value for name, value in present.items() if name not in conditional}
    parameters = [
        choices[n].parameter
        if n in choices
        else Fixed(n, present[n])
        if n in conditional
        else known[n]
        for n in known
    ]
    of_model = {n.removeprefix(prefix): v for n, v in estimator.get_params().items()}
    said = dict.fromkeys((name.removeprefix(prefix) for name in given), True)
    constants = entry.beside(choices, {**of_model, **said})
    return (
        Searched(choices, names, held, always, prefix, entry, constants),
        prior.space.among(parameters),
        tuple(new),
    )


def _say_what_was_set(estimator: Any, prefix: str, entry: Entry, searched: list[str]) -> None:
    """In the log: parameters that the user has set and that are searched all the same."""
    names = [*entry.arguments({name: entry.defaults.get(name) for name in searched})]
    changed = dict(changed_on(estimator, [f"{prefix}{name}" for name in names]))
    if not changed:
        return
    others = [f"{prefix}{name}" for name in names if f"{prefix}{name}" not in changed]
    remedy = ". To hold what you set, give a param_space of the others alone: %s"
    LOGGER.warning(
        "without a param_space, what was set on the estimator is searched, too: %s%s",
        ", ".join(f"{name}={value!r}" for name, value in changed.items()),
        remedy % first_of(others) if others else "",
    )


def changed_on(estimator: Any, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Arguments that are not as in an estimator that is made without any."""
    present = estimator.get_params()
    for name in names:
        owner, _, argument = name.rpartition("__")
        with contextlib.suppress(TypeError):  # one that is not made without arguments
            default = type(present.get(owner, estimator))().get_params(deep=False)
            if name in present and repr(present[name]) != repr(default.get(argument)):
                yield name, present[name]


def within(known: Parameter, wanted: Parameter) -> Parameter | None:
    """The range that is wanted, on the scale of the prior; None where it is another thing."""
    if isinstance(known, Float) and isinstance(wanted, Float):
        if not max(known.low, wanted.low) < min(known.high, wanted.high):
            return None
        whole = isinstance(known, Integer) or isinstance(wanted, Integer)
        low = known.low if known.log and wanted.low <= 0 else wanted.low
        ends = (ceil(low), floor(wanted.high)) if whole else (low, wanted.high)
        if whole and not isinstance(known, Integer):
            known = Integer(known.name, ends[0], ends[1], log=known.log)
        return replace(known, low=ends[0], high=ends[1]) if ends[0] < ends[1] else None
    if isinstance(known, Categorical) and isinstance(wanted, Categorical | Fixed):
        values = wanted.choices or (wanted.value,)  # type: ignore[union-attr]
        left = tuple(v for v in known.values if v in values)
        if len(left) < len(values) or not left:
            return None
        return Categorical(known.name, left) if len(left) > 1 else Fixed(known.name, left[0])
    return None


def wider(wanted: Parameter, known: Parameter) -> bool:
    """Whether a range goes beyond that of the prior."""
    if not (isinstance(wanted, Float) and isinstance(known, Float)):
        return False
    return wanted.low < known.low or wanted.high > known.high


def held_value(estimator: Any, prefix: str, entry: Entry, known: Parameter) -> Any:
    """What the estimator has, where the prior can say it; the default of the package otherwise."""
    value: Any = estimator.get_params().get(f"{prefix}{known.name}", nan)
    value = "none" if value is None and "none" in known.choices else value
    number = isinstance(known, Float)
    usable = is_number(value) and isfinite(value) if number else value in known.choices
    if not usable and known.name not in entry.defaults:
        raise InputError(
            f"param_space leaves out {known.name!r}, and the estimator has {value!r} there; "
            f"expected {known.describe()}. Set it on the estimator, or give it in param_space"
        )
    value = value if usable else entry.defaults[known.name]
    if isinstance(known, Float):
        return known.normalize(min(max(value, known.low), known.high))
    return value


# What is tried next: never the same twice, also where lists leave few configurations


class Untried:
    """Configurations of a search in the order in which they are tried.

    A list has gaps: what the optimizer asks for is moved to a value of the list, and may have been
    tried already. Then it is the most promising one that has not been, by the optimizer's model.
    """

    def __init__(self, searched: Searched, optimizer: Optimizer, seed: int) -> None:
        self.searched, self._optimizer = searched, optimizer
        self._tried: set[str] = set()
        self._rng = np.random.default_rng(seed)

    def next(self) -> dict[str, Any] | None:
        """The next configuration; None if there is none left."""
        asked = self._optimizer.ask()
        found = self.searched.settled(asked)
        new = self._key(found) not in self._tried
        if not (new and found == asked):
            self._optimizer.drop(asked)
        chosen = found if new else self._most_promising()
        if chosen is not None:
            self._tried.add(self._key(chosen))
        return chosen

    def _key(self, configuration: Mapping[str, Any]) -> str:
        return repr(sorted(self.searched.arguments(configuration).items()))

    def _most_promising(self) -> dict[str, Any] | None:
        left = {self._key(found): found for found in self._possible()}
        others = [found for key, found in left.items() if key not in self._tried]
        if not others:
            return None
        mean, deviation = self._optimizer.predict(others)
        gain = -mean if self._optimizer.minimize else mean
        return others[int(np.argmax(gain + DEVIATIONS * deviation))]

    def _possible(self) -> Iterator[dict[str, Any]]:
        """All of them where they are few, otherwise some that are drawn."""
        domain, searched = self._optimizer.domain, self.searched
        values = [choice.possible for choice in searched.choices.values()]
        finite = [found for found in values if found is not None]
        related = isinstance(domain, SearchSpace) and domain.model_space.conditions
        if len(finite) == len(values) and not related and prod(map(len, finite)) <= MOST:
            for row in product(*finite):
                yield {**searched.held, **dict(zip(searched.choices, row, strict=True))}
            return
        for x in domain.sample(self._rng, DRAWN):
            yield searched.settled(domain.decode(x))
