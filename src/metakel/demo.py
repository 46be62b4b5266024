"""`make demo`: draw past tasks from a hidden kernel, learn it back, show what was found."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from metakel.kernels import KernelSum, legendre
from metakel.learn import Learned, learn_kernel
from metakel.paper.synthetic import sample_history, true_kernel
from metakel.tasks import History


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demonstration and save its picture."""
    parser = argparse.ArgumentParser(prog="python -m metakel.demo", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="which hidden kernel to draw")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="where to put the picture")
    chosen = parser.parse_args(arguments)
    rng = np.random.default_rng(chosen.seed)
    base = legendre(20, scaling="l2")
    truth = true_kernel(base, sparsity=5, rng=rng, smallest=0.05)
    history = sample_history(truth, m=50, n=50, norm=10, noise_std=0.01, rng=rng)

    print("Past tasks, as the paper's Section 6 draws them:\n")
    print(history)
    start = perf_counter()
    learned = learn_kernel(history, base)
    seconds = perf_counter() - start
    print(
        f"\nLearned in {1000 * seconds:.0f} ms, knowing neither the kernel nor the noise level:\n"
    )
    print(learned.report())

    hidden = tuple(base.names[j] for j in truth.active)
    verdict = "recovered exactly" if hidden == learned.names else "NOT recovered exactly"
    print(f"\nThe hidden kernel was made of {', '.join(hidden)}: {verdict}.")
    print(f"The noise was 0.01, estimated as {learned.noise_std:.4f}.")
    print(
        f"Certificate: no kernel does better by more than {learned.solution.gap:.0e} of the "
        "observations' mean square (duality gap, recomputed from the raw data)."
    )
    picture = draw(truth, learned, history, chosen.out)
    print(f"\nPicture: {picture}")


def draw(truth: KernelSum, learned: Learned, history: History, folder: Path) -> Path:
    """True and learned weights, and a few tasks with the functions fitted to them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    degrees = np.arange(1, truth.base.p + 1)
    squares = learned.refitted() ** 2
    left.bar(degrees - 0.2, truth.eta, 0.4, label="hidden kernel", color="0.6")
    left.bar(degrees + 0.2, squares / squares.sum(), 0.4, label="learned (refitted second moments)")
    left.set(
        xlabel="degree of the Legendre polynomial",
        ylabel="share of the kernel",
        title=f"{learned.active.size} of {truth.base.p} base kernels selected",
        xticks=degrees[::2],
    )
    left.legend()

    Z = np.linspace(-1, 1, 400)
    Phi = truth.base.features(Z)
    assert learned.solution.beta is not None
    for s, color in zip(range(3), ("C0", "C1", "C2"), strict=True):
        task = history[s]
        right.plot(task.X[:, 0], task.y, "o", ms=3, color=color)
        right.plot(Z, Phi @ learned.solution.beta[s], color=color, lw=1, label=task.name)
    right.set(xlabel="x", ylabel="f(x)", title="Three past tasks: observations and learned fit")
    right.legend()
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "learned-kernel.png"
    figure.savefig(picture, dpi=120)
    plt.close(figure)
    return picture


if __name__ == "__main__":
    main()
