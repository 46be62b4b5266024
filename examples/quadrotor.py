"""Tune the attitude controller of a quadrotor nobody has flown, without a dangerous flight.

Every vehicle has its own inertia, drag and motor lag. Forty were flown with a hundred gains each,
and teach what the error and the overshoot look like as functions of the gains. Forty more were
measured everywhere and say where the next vehicle may be flown first. Sixty more replay the whole
procedure, which gives a certificate that needs no model at all.

    python examples/quadrotor.py [--vehicles 20] [--picture quadrotor.png]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

import metakel as mk

STEP, DURATION, DELAY = 0.005, 2.5, 0.02  # seconds
THRUST = 40.0  # rad/s^2, the largest angular acceleration
PEAK, NOISE, TRIES = 1.3, 0.02, 20  # largest peak of a unit step; noise of both outputs
DEGREE, FUNCTIONS = 6, 4
SIDE = 19
DOMAIN = mk.grid([(-1, 1), (-1, 1)], SIDE)  # log of the gains, scaled
KP = 6.0 * (60.0 / 6.0) ** ((DOMAIN.X[:, 0] + 1) / 2)
KD = 1.5 * (14.0 / 1.5) ** ((DOMAIN.X[:, 1] + 1) / 2)


def fly(vehicle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(361,) -log10 of the integrated error, and peak, of a unit step for all gains.

    Pitch: theta'' = a u - c theta', with motor lag tau, a delay of 20 ms and limited thrust.
    """
    a, c, tau = vehicle
    angle, rate, motor = np.zeros((3, len(KP)))
    error, peak = np.zeros(len(KP)), np.zeros(len(KP))
    waiting = [np.zeros(len(KP))] * round(DELAY / STEP)
    for _ in range(round(DURATION / STEP)):
        waiting.append(np.clip(KP * (1 - angle) - KD * rate, -THRUST, THRUST))
        motor += STEP / tau * (waiting.pop(0) - motor)
        rate += STEP * (a * motor - c * rate)
        angle += STEP * rate
        error += STEP * np.abs(1 - angle)
        peak = np.maximum(peak, np.abs(angle))
    return -np.log10(np.minimum(error, 3.0)), np.minimum(peak, 2.0)


def vehicles(count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Inertia (as 1/a), drag and motor lag of new vehicles."""
    return list(rng.uniform([0.45, 0.1, 0.02], [2.0, 1.0, 0.09], size=(count, 3)))


def polynomials(X: np.ndarray) -> np.ndarray:
    """All products of Legendre polynomials up to a total degree."""
    one, two = (np.polynomial.legendre.legvander(X[:, i], DEGREE) for i in (0, 1))
    pairs = [(i, j) for i in range(DEGREE + 1) for j in range(DEGREE + 1 - i)]
    return np.stack([one[:, i] * two[:, j] for i, j in pairs], axis=1)


def principal_functions(
    rows: list[np.ndarray], values: list[np.ndarray], name: str
) -> mk.KernelSum:
    """A kernel with the mean of the taught functions and the main ways in which they differ."""
    fits = [
        np.linalg.lstsq(polynomials(DOMAIN.X[r]), y, rcond=None)[0]
        for r, y in zip(rows, values, strict=True)
    ]
    mean = np.mean(fits, axis=0)
    _, sizes, directions = np.linalg.svd(np.array(fits) - mean, full_matrices=False)
    sizes = sizes[:FUNCTIONS] / np.sqrt(len(fits))
    basis = np.column_stack([mean, directions[:FUNCTIONS].T * sizes])
    kernel = mk.from_features(lambda X: polynomials(X) @ basis, FUNCTIONS + 1, name=name, d0=2)
    return mk.KernelSum.uniform(kernel, weight=1.0)


@dataclass(frozen=True)
class Lesson:
    """What past vehicles say of the next one."""

    error: mk.KernelSum
    peak: mk.KernelSum
    start: mk.optimize.SafeStart

    @classmethod
    def learn(cls, rng: np.random.Generator, teach: int = 40, calibrate: int = 40) -> Lesson:
        """From vehicles flown with 100 gains each, and others that were measured everywhere."""
        flown = [fly(vehicle) for vehicle in vehicles(teach, rng)]
        rows = [rng.choice(len(DOMAIN), 100, replace=False) for _ in flown]
        noisy = [
            [
                outputs[i][r] + NOISE * rng.normal(size=100)
                for outputs, r in zip(flown, rows, strict=True)
            ]
            for i in (0, 1)
        ]
        kernels = [principal_functions(rows, noisy[i], f"output {i}") for i in (0, 1)]
        measured = [fly(vehicle) for vehicle in vehicles(calibrate, rng)]
        errors, peaks = (
            mk.History.from_pairs(
                [(DOMAIN.X[r], y) for r, y in zip(rows, noisy[i], strict=True)]
                + [(DOMAIN.X, outputs[i]) for outputs in measured]
            )
            for i in (0, 1)
        )
        start = mk.safe_start(
            errors,
            kernels[0],
            domain=DOMAIN,
            noise_std=0.0,
            limits={"peak": mk.PastOutput(peaks, kernels[1], 0.0, at_most=PEAK)},
            teach=teach / (teach + calibrate),
        )
        return cls(*kernels, start)

    def optimizer(self, rng: np.random.Generator, delta: float = 0.1) -> mk.optimize.Optimizer:
        """A safe search for the gains of the next vehicle."""
        peak = self.start.outputs["peak"]
        limit = mk.Limit(
            self.peak, NOISE, peak.norm_bound, at_most=PEAK, centre=peak.centre, norm_of="kernel"
        )
        return mk.GPUCB(
            self.error,
            DOMAIN,
            rng=rng,
            noise_std=NOISE,
            norm_bound=self.start.norm_bound,
            norm_of="kernel",
            centre=self.start.centre,
            limits={"peak": limit},
            start=self.start,
            delta=delta,
        )


def table(vehicle: np.ndarray) -> mk.Table:
    """A vehicle that was measured everywhere."""
    error, peak = fly(vehicle)
    return mk.Table(DOMAIN.X, error, outputs={"peak": peak})


def extra_error(past: mk.optimize.PastRun, truth: mk.Table, tries: int) -> float:
    """How much larger the error of the best safe gains tried is than the smallest safe one."""
    safe = truth.outputs["peak"] <= PEAK
    tried = [row for row in past.tried[:tries] if safe[row]]
    best = truth.y[tried].max() if tried else truth.y[past.tried[0]]
    return float(10 ** (truth.y[safe].max() - best) - 1)


def main() -> None:
    """Learn, replay, fly."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--vehicles", type=int, default=20, help="new vehicles to tune")
    arguments.add_argument("--replays", type=int, default=60, help="vehicles for the certificate")
    arguments.add_argument("--picture", help="where to draw the last vehicle")
    given = arguments.parse_args()
    rng = np.random.default_rng(0)
    lesson = Lesson.learn(rng)
    inside = lesson.start.contains(DOMAIN.X)
    print(f"{lesson.start}\n{inside.sum()} of {len(DOMAIN)} gains may be flown first")

    def policy(past: mk.optimize.PastRun) -> None:
        past.run(lesson.optimizer(past.rng), TRIES)

    noise, limits = {"": NOISE, "peak": NOISE}, {"peak": (None, PEAK)}
    tables = [table(vehicle) for vehicle in vehicles(given.replays, rng)]
    certificate = mk.replay(policy, tables, limits=limits, noise_std=noise, rng=rng)
    print(f"replay: {certificate}")
    new = [table(vehicle) for vehicle in vehicles(given.vehicles, rng)]
    runs: list[mk.optimize.PastRun] = []

    def noted(past: mk.optimize.PastRun) -> None:
        runs.append(past)
        policy(past)

    flown = mk.replay(noted, new, limits=limits, noise_std=noise, rng=rng)
    print(f"new vehicles with a dangerous flight: {flown.count} of {flown.tasks}")
    for tries in (1, 3, 5, 10, 20):
        extra = [extra_error(run, truth, tries) for run, truth in zip(runs, new, strict=True)]
        print(
            f"extra error after {tries:2d} flights: {np.mean(extra):.1%}, "
            f"median {np.median(extra):.1%}"
        )
    if given.picture:
        draw(lesson, new[-1], runs[-1], given.picture)


def draw(lesson: Lesson, truth: mk.Table, run: mk.optimize.PastRun, path: str) -> None:
    """Peak over the gains, what history allows, and what was tried."""
    import matplotlib.pyplot as plt

    shape = (SIDE, SIDE)
    kp, kd, peak = (v.reshape(shape) for v in (KP, KD, truth.outputs["peak"]))
    figure, axes = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    shades = axes.contourf(kp, kd, peak, levels=np.linspace(1.0, 2.0, 11), cmap="Greys", alpha=0.6)
    axes.contour(kp, kd, peak, levels=[PEAK], colors="C3", linewidths=2)
    inside = lesson.start.contains(DOMAIN.X).reshape(shape).astype(float)
    axes.contour(kp, kd, inside, levels=[0.5], colors="C0", linestyles="--")
    axes.plot(KP[run.tried], KD[run.tried], "o", color="C0", ms=6, label="flights, safe search")
    safe = truth.outputs["peak"] <= PEAK
    best = int(np.argmax(np.where(safe, truth.y, -np.inf)))
    axes.plot(KP[best], KD[best], "*", color="C2", ms=16, label="best safe gains of this vehicle")
    axes.plot([], [], color="C3", lw=2, label=f"peak of {PEAK}: the limit")
    axes.plot([], [], "--", color="C0", label="allowed by past vehicles")
    axes.set(xscale="log", yscale="log", xlabel="proportional gain", ylabel="derivative gain")
    axes.set_xticks([6, 10, 20, 40, 60], ["6", "10", "20", "40", "60"])
    axes.set_yticks([2, 4, 8, 14], ["2", "4", "8", "14"])
    axes.minorticks_off()
    axes.set_title("A vehicle nobody has flown")
    axes.legend(loc="lower right", fontsize=8)
    figure.colorbar(shades, label="peak of the step response")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
