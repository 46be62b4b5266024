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
from scipy.special import betaincinv

import metakel as mk
from metakel import safe

STEP, DURATION, DELAY, THRUST = 0.005, 2.5, 0.02, 40.0  # seconds; rad/s^2
PEAK, NOISE, FLIGHTS = 1.3, 0.02, 20  # largest peak of a unit step; noise of both outputs
RECORDS, DEGREE, FUNCTIONS = 100, 6, 4
DOMAIN = mk.grid([(-1, 1), (-1, 1)], 19)  # logarithms of the two gains, scaled
KP = 6.0 * (60.0 / 6.0) ** ((DOMAIN.X[:, 0] + 1) / 2)
KD = 1.5 * (14.0 / 1.5) ** ((DOMAIN.X[:, 1] + 1) / 2)


@dataclass(frozen=True)
class Vehicle:
    """A past or new vehicle, measured with all gains: -log10 of the error, and the peak."""

    y: np.ndarray
    peak: np.ndarray

    def fly(self, row: int, rng: np.random.Generator) -> tuple[float, dict[str, float]]:
        """One noisy flight."""
        noise = NOISE * rng.normal(size=2)
        return float(self.y[row] + noise[0]), {"peak": float(self.peak[row] + noise[1])}


def fly(a: float, c: float, tau: float) -> Vehicle:
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
    return Vehicle(-np.log10(np.minimum(error, 3.0)), np.minimum(peak, 2.0))


def vehicles(count: int, rng: np.random.Generator) -> list[Vehicle]:
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
    kernel = mk.kernels.from_features(
        lambda X: polynomials(X) @ basis, FUNCTIONS + 1, name=name, d0=2
    )
    return mk.KernelSum.uniform(kernel, weight=1.0)


@dataclass(frozen=True)
class Lesson:
    """What past vehicles say of the next one: where to begin, and how the outputs behave."""

    start: safe.SafeStart

    @classmethod
    def learn(cls, rng: np.random.Generator, teach: int = 40, calibrate: int = 40) -> Lesson:
        """From vehicles flown with 100 gains each, and others that were measured everywhere."""
        flown, measured = vehicles(teach, rng), vehicles(calibrate, rng)
        rows = [rng.choice(len(DOMAIN), RECORDS, replace=False) for _ in flown]
        past, kernels = [], []
        for name in ("error", "peak"):
            noise = NOISE * rng.normal(size=(teach, RECORDS))
            values = [v.peak if name == "peak" else v.y for v in flown + measured]
            records = [
                (DOMAIN.X[r], y[r] + e) for r, y, e in zip(rows, values, noise, strict=False)
            ]
            kernels.append(principal_functions(records, name))
            past.append(mk.History.from_pairs(records + [(DOMAIN.X, y) for y in values[teach:]]))
        peak = safe.LimitHistory(
            past[1], kernels[1], 0.0, at_most=PEAK
        )  # 0: calibrated without noise
        options = {"domain": DOMAIN, "noise_std": 0.0, "teach": teach / (teach + calibrate)}
        return cls(safe.safe_start(past[0], kernels[0], limits={"peak": peak}, **options))

    def optimizer(self, rng: np.random.Generator) -> mk.optimize.Optimizer:
        """A safe search for the gains of the next vehicle."""
        start, peak = self.start, self.start.outputs["peak"]
        bound = {"norm_bound": peak.norm_bound, "center": peak.center, "norm_of": "kernel"}
        return mk.GPUCB(
            safe.Limited(
                mk.ConfidenceSequence(
                    start.kernel,
                    noise_std=NOISE,
                    norm_bound=start.norm_bound,
                    norm_of="kernel",
                    center=start.center,
                    delta=0.1,
                ),
                limits={"peak": safe.Limit(peak.center.kernel, NOISE, at_most=PEAK, **bound)},
                start=start,
            ),
            DOMAIN,
            rng=rng,
        )

    def tune(self, vehicle: Vehicle, rng: np.random.Generator) -> list[int]:
        """Which gains are flown in twenty flights with one vehicle; fewer if none is left."""
        game, flown = self.optimizer(rng), []
        try:
            while len(flown) < FLIGHTS:
                x = game.ask()
                flown.append(int(DOMAIN.index(x[None])[0]))
                game.tell(x, *vehicle.fly(flown[-1], rng))
        except (safe.NoSafePoint, mk.Alarm):
            pass  # the end of the run, without a dangerous flight
        return flown


def dangerous(vehicle: Vehicle, flown: list[int]) -> bool:
    """Whether a flight went beyond the largest peak."""
    return bool((vehicle.peak[flown] > PEAK).any())


def extra_error(vehicle: Vehicle, flown: list[int]) -> float:
    """How much larger the error of the best safe gains flown is than the smallest safe one."""
    safe = vehicle.peak <= PEAK
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
    past = vehicles(given.replays, rng)
    count = sum(dangerous(vehicle, lesson.tune(vehicle, rng)) for vehicle in past)
    bound = betaincinv(count + 1, len(past) - count, 0.95) if count < len(past) else 1.0
    print(f"dangerous in {count} of {len(past)} replays, so with probability <= {bound:.2g}")
    new = vehicles(given.vehicles, rng)
    flown = [lesson.tune(vehicle, rng) for vehicle in new]
    count = sum(dangerous(*pair) for pair in zip(new, flown, strict=True))
    print(f"new vehicles with a dangerous flight: {count} of {len(new)}")
    for flights in (1, 3, 5, 10, 20):
        tried = zip(new, flown, strict=True)
        extra = [extra_error(vehicle, rows[:flights]) for vehicle, rows in tried]
        print(f"extra error after {flights:2d} flights: {np.mean(extra):.1%} on average")


if __name__ == "__main__":
    main()
