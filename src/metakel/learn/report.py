"""What a learned kernel selected, and what it may have missed, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metakel.errors import InputError
from metakel.learn.problem import PIVOTAL, root_mean_square
from metakel.learn.screening import FEWEST_TASKS

if TYPE_CHECKING:
    from metakel.learn.kernel import LearnedKernel

LISTED = 30  # unselected kernels in a report


def report(learned: LearnedKernel) -> str:
    """See `LearnedKernel.report`."""
    eta, names = learned.solution.eta, learned.kernel.base.names
    lines = [str(learned)]
    if learned.active.size:
        share = eta / eta.sum()
        width = max(len("kernel"), *(len(names[j]) for j in learned.active))
        lines.append(f"  {'kernel':{width}}  strength  share")
        lines += [
            f"  {names[j]:{width}}  {eta[j]:8.4g}  {share[j]:5.1%}"
            for j in sorted(learned.active, key=lambda j: -eta[j])
        ]
    if learned.exact_fit:
        lines.append(
            "  they fit the observations to 1e-6 of their root mean square, which is used as "
            "noise_std: less cannot be distinguished from rounding; pass noise_std= if you "
            "know it"
        )
    if learned.rule == PIVOTAL and not (learned.active.size or learned.noise_known):
        lines.append(f"  {learned.nothing_found()}")
    lines += _hidden_lines(learned)
    try:
        test = learned.screening()
    except InputError as error:
        return "\n".join([*lines, f"  missing kernels were not tested for: {error}"])
    missed = [names[j] for j in np.setdiff1d(test.kept, learned.active)]
    lines.append(
        f"  a base kernel that contributes a sum of squares above {test.detectable.max():.3g} "
        f"over all {learned.history.total} observations is detected with probability 0.9 "
        "(chi-square test for Gaussian noise and points fixed in advance)"
    )
    if missed:
        lines.append(f"  the same test also finds: {', '.join(missed)}")
        if learned.noise_source == "residuals":
            lines.append(
                "  what these explain counts as noise now; pass noise_std= to separate the two"
            )
    return "\n".join(lines)


def _hidden_lines(learned: LearnedKernel) -> list[str]:
    """How large the unselected kernels could be, and a warning where that is not small."""
    values, names = learned.hidden_values, learned.kernel.base.names
    out = np.flatnonzero(learned.hidden())
    if not out.size:
        return []
    size, sigma = root_mean_square(learned.problem), learned.noise_std
    width = max(len("kernel"), *(len(names[j]) for j in out))
    lines = [
        "  values that a kernel can have without being selected (root mean square; tasks count",
        "  by the square of their points):",
        f"  {'kernel':{width}}  at most  over noise  over y",
    ]
    lines += [
        f"  {names[j]:{width}}  {values[j]:7.3g}  {values[j] / sigma:10.2f}  "
        f"{values[j] / (size or 1.0):6.1%}"
        for j in sorted(out, key=lambda j: -values[j])[:LISTED]
    ]
    if out.size > LISTED:
        lines.append(f"  {out.size - LISTED} more, none larger than these")
    if learned.missed:
        lines.append(
            "  warning: past tasks hold more than the selected kernels and noise (p-value "
            f"{learned.missed_p_value:.2g}). Confidence with learned.kernel, the selection alone, "
            "would be too narrow; ConfidenceSequence(learned) allows for the rest"
        )
    if learned.history.m < FEWEST_TASKS:
        lines.append(
            f"  {learned.history.m} tasks are too few to say which kernels the next one does "
            f"without ({FEWEST_TASKS} could): ConfidenceSequence(learned) keeps all"
        )
    return lines
