"""Tune the attitude controller of a quadrotor nobody has flown, without a dangerous flight.

Every vehicle has its own inertia, drag and motor lag. Forty were flown with a hundred gains each
and teach what error and overshoot look like as functions of the gains. Forty more were measured
everywhere and say where the next vehicle may be flown first. Sixty more replay the whole procedure,
which gives a certificate that needs no model at all: ``python examples/quadrotor.py``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

import metakel as mk

STEP, DURATION, DELAY, THRUST = 0.005, 2.5, 0.02, 40.0  # seconds; rad/s^2
PEAK, NOISE, FLIGHTS = 1.3, 0.02, 20  # largest peak of a unit step; noise of both outputs
LIMITS, NOISES = {"peak": (None, PEAK)}, {"": NOISE, "peak": NOISE}
RECORDS, DEGREE, FUNCTIONS = 100, 6, 4
DOMAIN = mk.grid([(-1, 1), (-1, 1)], 19)  # logarithms of the two gains, scaled
KP = 6.0 * (60.0 / 6.0) ** ((DOMAIN.X[:, 0] + 1) / 2)
KD = 1.5 * (14.0 / 1.5) ** ((DOMAIN.X[:, 1] + 1) / 2)


def fly(a: float, c: float, tau: float) -> mk.Table:
    """A unit step of a vehicle with all gains: -log10 of the integrated error, and the peak.

    theta'' = a u - c theta', with motor lag tau, a delay of 20 ms and limited thrust.
    """
    angle, rate, motor, error, peak = np.zeros((5, len(KP)))
    waiting = [np.zeros(len(KP))] * round(DELAY / STEP)
    for _ in range(round(DURATION / STEP)):
        waiting.append(np.clip(KP * (1 - angle) - KD * rate, -THRUST, THRUST))
        motor = motor + STEP / tau * (waiting.pop(0) - motor)
        rate = rate + STEP * (a * motor - c * rate)
        angle = angle + STEP * rate
        error = error + STEP * np.abs(1 - angle)
        peak = np.maximum(peak, np.abs(angle))
    outputs = {"peak": np.minimum(peak, 2.0)}
    return mk.Table(DOMAIN.X, -np.log10(np.minimum(error, 3.0)), outputs=outputs)


def vehicles(count: int, rng: np.random.Generator) -> list[mk.Table]:
    """Vehicles with inertia (as 1/a), drag and motor lag of their own, measured everywhere."""
    return [fly(*v) for v in rng.uniform([0.45, 0.1, 0.02], [2.0, 1.0, 0.09], size=(count, 3))]


def polynomials(X: np.ndarray) -> np.ndarray:
    """All products of Legendre polynomials up to a total degree."""
    one, two = (np.polynomial.legendre.legvander(X[:, i], DEGREE) for i in (0, 1))
    pairs = [(i, j) for i in range(DEGREE + 1) for j in range(DEGREE + 1 - i)]
    return np.stack([one[:, i] * two[:, j] for i, j in pairs], axis=1)


def principal_functions(records: list[tuple[np.ndarray, np.ndarray]], name: str) -> mk.KernelSum:
    """A kernel with the mean of the recorded functions and the main ways in which they differ."""
    fits = np.array([np.linalg.lstsq(polynomials(X), y, rcond=None)[0] for X, y in records])
    mean = fits.mean(axis=0)
    _, sizes, directions = np.linalg.svd(fits - mean, full_matrices=False)
    scaled = directions[:FUNCTIONS].T * sizes[:FUNCTIONS] / np.sqrt(len(fits))
    basis = np.column_stack([mean, scaled])
    kernel = mk.from_features(lambda X: polynomials(X) @ basis, FUNCTIONS + 1, name=name, d0=2)
    return mk.KernelSum.uniform(kernel, weight=1.0)


@dataclass(frozen=True)
class Lesson:
    """What past vehicles say of the next one: where to begin, and how the outputs behave."""

    start: mk.optimize.SafeStart

    @classmethod
    def learn(cls, rng: np.random.Generator, teach: int = 40, calibrate: int = 40) -> Lesson:
        """From vehicles flown with 100 gains each, and others that were measured everywhere."""
        flown, measured = vehicles(teach, rng), vehicles(calibrate, rng)
        rows = [rng.choice(len(DOMAIN), RECORDS, replace=False) for _ in flown]
        past, kernels = [], []
        for name in ("error", "peak"):
            noise = NOISE * rng.normal(size=(teach, RECORDS))
            values = [v.outputs.get(name, v.y) for v in flown + measured]
            records = [
                (DOMAIN.X[r], y[r] + e) for r, y, e in zip(rows, values, noise, strict=False)
            ]
            kernels.append(principal_functions(records, name))
            past.append(mk.History.from_pairs(records + [(DOMAIN.X, y) for y in values[teach:]]))
        peak = mk.PastOutput(past[1], kernels[1], 0.0, at_most=PEAK)  # 0: calibrated without noise
        options = {"domain": DOMAIN, "noise_std": 0.0, "teach": teach / (teach + calibrate)}
        return cls(mk.safe_start(past[0], kernels[0], limits={"peak": peak}, **options))

    def optimizer(self, rng: np.random.Generator) -> mk.optimize.Optimizer:
        """A safe search for the gains of the next vehicle."""
        start, peak = self.start, self.start.outputs["peak"]
        bound = {"norm_bound": peak.norm_bound, "centre": peak.centre, "norm_of": "kernel"}
        return mk.GPUCB(
            start.kernel,
            DOMAIN,
            rng=rng,
            noise_std=NOISE,
            norm_bound=start.norm_bound,
            norm_of="kernel",
            centre=start.centre,
            limits={"peak": mk.Limit(peak.centre.kernel, NOISE, at_most=PEAK, **bound)},
            start=start,
            delta=0.1,
        )

    def tune(self, past: mk.optimize.PastRun) -> None:
        """Twenty flights with one vehicle."""
        past.run(self.optimizer(past.rng), FLIGHTS)


def extra_error(vehicle: mk.Table, flown: list[int]) -> float:
    """How much larger the error of the best safe gains flown is than the smallest safe one."""
    safe = vehicle.outputs["peak"] <= PEAK
    best = max((vehicle.y[row] for row in flown if safe[row]), default=vehicle.y.min())
    return float(10 ** (vehicle.y[safe].max() - best) - 1)


def main() -> None:
    """Learn, replay, fly."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--vehicles", type=int, default=20, help="new vehicles to tune")
    arguments.add_argument("--replays", type=int, default=60, help="vehicles for the certificate")
    given, rng = arguments.parse_args(), np.random.default_rng(0)
    lesson = Lesson.learn(rng)
    print(lesson.start)
    print(f"{lesson.start.contains(DOMAIN.X).sum()} of {len(DOMAIN)} gains may be flown first")
    options = {"limits": LIMITS, "noise_std": NOISES, "rng": rng}
    print(f"replay: {mk.replay(lesson.tune, vehicles(given.replays, rng), **options)}")
    new = vehicles(given.vehicles, rng)
    flown = mk.replay(lesson.tune, new, **options)
    print(f"new vehicles with a dangerous flight: {flown.count} of {flown.tasks}")
    for flights in (1, 3, 5, 10, 20):
        tried = zip(new, flown.rows, strict=True)
        extra = [extra_error(vehicle, rows[:flights]) for vehicle, rows in tried]
        print(f"extra error after {flights:2d} flights: {np.mean(extra):.1%} on average")


if __name__ == "__main__":
    main()
