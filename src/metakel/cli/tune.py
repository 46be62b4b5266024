"""``metakel tune``: run a command with one configuration after the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from metakel.cli.console import (
    CANNOT_WRITE,
    INTERRUPTED,
    NOTHING_SUCCEEDED,
    PENDING_ELSEWHERE,
    Json,
    OutputClosed,
    emit,
    note,
    one_line,
    say,
)
from metakel.cli.options import PriorPath, why_stopped
from metakel.cli.program import (
    Program,
    RunResult,
    StopSignals,
    check_command,
    check_placeholders,
    step_pattern,
)
from metakel.cli.show import duration
from metakel.cli.suggest import SearchOptions
from metakel.confidence import Alarm
from metakel.curves import Curve, Decision
from metakel.errors import InputError
from metakel.library import ENTRIES, as_curves, as_prior, spelled
from metakel.optimize.model import NothingToAsk
from metakel.optimize.record import Trial
from metakel.priors import Prior
from metakel.tuner import Tuner
from metakel.tuner.fold import age
from metakel.tuner.lock import is_alive, this_process


def tune(
    prior: PriorPath,
    command: Annotated[
        list[str],
        typer.Argument(help="After --: the program and its arguments, {name} for parameters."),
    ],
    budget: Annotated[int, typer.Option(min=1, help="At most how many evaluations.")] = 30,
    journal: Annotated[
        Path, typer.Option(help="Records everything; continued if it exists.")
    ] = Path("metakel-run.jsonl"),
    timeout: Annotated[float | None, typer.Option(help="Seconds for one evaluation.")] = None,
    retries: Annotated[int, typer.Option(min=0, help="Tries after a failed one.")] = 0,
    value_file: Annotated[
        str,
        typer.Option(
            help="File that the command writes its value to, as in out/{number}.txt. With {number} "
            "several runs can share a journal. [default: the last line of output]"
        ),
    ] = "",
    step: Annotated[
        str,
        typer.Option(
            "--step-pattern",
            help="How a line of output tells a value at a step: 'epoch={step} val={value}'. Runs "
            "that would not become the best are then ended early.",
        ),
    ] = "",
    curves: Annotated[
        str,
        typer.Option(
            help="How curves went on in the past: a file of CurveModel.save, or library:NAME. "
            "[default: that of the prior, where it is of the library]"
        ),
    ] = "",
    stop_at: Annotated[
        str | None,
        typer.Option(
            help="Stop when nothing can be better by more than this, or 1% of the spread."
        ),
    ] = None,
    give_up: Annotated[int, typer.Option(min=1, help="Failures in a row that end the run.")] = 5,
    adopt_after: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which to repeat an evaluation of another container or machine, "
            "which cannot be looked up. [default: never]"
        ),
    ] = None,
    *,
    search: SearchOptions,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Say why each configuration is tried.")
    ] = False,
    json: Json = False,
) -> None:
    """Tune a command that prints a value.

    The value is the last line of its output: a number, alone or after a name. Several outputs are a
    JSON object on the last line, or lines such as temperature=71.3. With --limit every output that
    it names has to be among them.

    The command is run without a shell. Its parameters are also in METAKEL_CONFIGURATION, as JSON,
    and its number in METAKEL_NUMBER. A run that was stopped or killed goes on when the same command
    is started again. Several runs may share a journal. A journal keeps the command that it was
    begun with: another command is another task, unless --same-task says otherwise.

    With --step-pattern, values that the program prints while it runs decide whether it is ended
    early: the run is then stopped, neither failed nor a value, and the search goes on.

    With --json: a line per evaluation with event (complete, failed or stopped), number,
    configuration, value, reason and outputs, and curve with --step-pattern; then a line with event
    finished, reason, complete, failed, stopped, best, certificate, alarm and trust.
    """
    if timeout is not None and not timeout > 0:
        raise typer.BadParameter(f"--timeout is {timeout:g}; expected seconds > 0")
    known = as_prior(prior)
    known, defaults = _as_in_the_command(known, command)
    search, names = replace(search, fix=[*defaults, *(search.fix or ())]), known.space.names
    check_placeholders(value_file, names, "--value-file")
    held = {text.partition("=")[0] for text in defaults}
    free = set(known.space.free) - held
    unused = [name for name in check_command(command, names) if name in free]
    if held:
        note(f"not in the command, and left at their defaults: {', '.join(sorted(held))}")
    if unused:
        note(f"not in the command, only in METAKEL_CONFIGURATION: {', '.join(unused)}")
    signals, stopper = StopSignals(), _stopper(known, step, curves)
    source = search.source(known)
    kept = [p for p in (prior, journal, search.observed, search.candidates) if p is not None]
    resumed = journal.exists()
    program = Program(
        command, timeout, retries, value_file, signals, source.output, source.others, names, kept,
        resumed=resumed, steps=step_pattern(step) if step else None,
    )  # fmt: skip
    with signals, program.guard, program.reserved(names):
        tuner = search.tuner(
            source, journal, command=command, budget=budget, stop_at=stop_at,
            adopt_after=adopt_after,
        )  # fmt: skip
        if resumed:
            _continue(tuner, journal)
        if tuner.stop_at is not None:
            share = " of the usual spread of a task" * str(tuner.stop_at).endswith("%")
            note(f"stops once nothing can be better by more than {tuner.stop_at}{share}")
        with _stoppable(journal):
            stopped, failures = "", 0
            try:
                failures = _loop(tuner, program, give_up, stopper, verbose=verbose, json=json)
            except (Alarm, NothingToAsk) as error:
                stopped = why_stopped(tuner, error)
            _conclude(tuner, journal, failures, give_up, stopped, json=json)
    if not json:
        listed = "" if search.candidates is None else f" --candidates {search.candidates}"
        note(f"next: metakel report {prior} --journal {journal}{listed}")
        if not known.info.model:  # one of the library lacks a table to add the journal to
            note(f"learn from this task, too: metakel learn ... --journals {journal}")


@contextmanager
def _stoppable(journal: Path) -> Iterator[None]:
    """Say how to go on where a signal comes or the output is closed."""
    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may be gone
            note(f"stopped; the same command goes on with {journal}")
        raise typer.Exit(INTERRUPTED) from None
    except OutputClosed:
        note("metakel: stopped, because nobody reads the output any more")
        note(f"the same command goes on with {journal}")
        raise typer.Exit(CANNOT_WRITE) from None


class TuneCommand(TyperCommand):
    """Explains what is missing where the words of the command are taken for options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Words as options and arguments."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # Of click, or of the copy of it that typer brings along.
            if type(error).__name__ == "NoSuchOption" and "--" not in given:
                hint = "put -- before the command to tune, as in -- python train.py --rate {rate}"
                vars(error)["message"] = f"{error} ({hint})"
            raise


def _continue(tuner: Tuner, journal: Path) -> None:
    """Say what the journal holds; where every evaluation failed, the command was at fault."""
    trials = tuner.trials
    failed = f", {len(trials.failed)} failed" if trials.failed else ""
    note(f"going on with {journal}: {len(trials.observed)} values{failed} so far")
    at_work = [
        t for t in trials.pending if not (t.note.released or is_alive(t.note.owner) is False)
    ]
    if trials.failed and not trials.observed and not at_work:
        count = tuner.drop_failed()
        note(
            f"nothing has succeeded yet: the {count} failures are taken back and do not count "
            "towards the budget"
        )


Stopper = Callable[[Sequence[Curve]], Callable[[Curve], Decision]]


def _stopper(prior: Prior, pattern: str, curves: str) -> Stopper | None:
    """Decides about the curve of a running program, given those of the journal."""
    if not pattern:
        if curves:
            raise InputError("--curves without --step-pattern; expected how lines tell values")
        return None
    if not curves and not prior.info.model:
        raise InputError(
            "--step-pattern without --curves: how do runs go on? Expected library:NAME with a "
            "model that has curves, or a file of CurveModel.learn(...).save(path)"
        )
    model, said = as_curves(curves or prior.info.model), set[str]()
    model.check_goal(prior.info.minimize, "the prior")

    def beside(earlier: Sequence[Curve]) -> Callable[[Curve], Decision]:
        # A whole run makes as many steps as the longest one so far.
        decided = model.beside(earlier, max((max(curve) for curve in earlier), default=None))

        def decide(curve: Curve) -> Decision:
            found = decided(curve)
            if found.never and found.reason not in said:
                said.add(found.reason)
                note(f"nothing is ended early, as {found.reason}")
            return found

        return decide

    return beside


def _loop(
    tuner: Tuner,
    program: Program,
    give_up: int,
    stopper: Stopper | None,
    *,
    verbose: bool,
    json: bool,
) -> int:
    """Evaluate until done; gives the number of failures at the end, in a row."""
    failures = 0
    alarmed = tuner.alarm is not None
    for configuration in tuner:
        waiting = tuner.run.waiting(configuration, this_process())
        number = -1 if waiting is None else waiting.number
        if verbose:
            note(f"why {number}: {tuner.explain(configuration)}")
        try:
            decide = None if stopper is None else stopper(tuner.trials.curves)
            outcome = program.run(number, configuration, decide)
        except InputError:  # it cannot be run at all, so nothing was evaluated
            tuner.drop(configuration)
            raise
        if outcome.state == "stopped":
            tuner.stop(configuration, outcome.curve, outcome.reason)
        else:
            tuner.tell(
                configuration, outcome.value, outcome.outputs, failed=outcome.state == "failed",
                reason=outcome.reason, curve=outcome.curve,
            )  # fmt: skip
        failures = failures + 1 if outcome.state == "failed" else 0
        _show(tuner, number, configuration, outcome, json=json)
        if tuner.alarm is not None and not alarmed:
            alarmed = True
            note(f"ALARM after {tuner.alarm.time} values: {tuner.alarm.reason}")
            if not tuner.optimizer.model.stops:
                note("there is no certificate from here on; the search goes on by the values")
        if failures >= give_up:
            break
    return failures


def _show(
    tuner: Tuner, number: int, configuration: dict[str, Any], outcome: RunResult, *, json: bool
) -> None:
    if json:
        facts = {name: fact for name, fact in asdict(outcome).items() if name != "stopped"}
        if not outcome.curve:
            del facts["curve"]
        emit({"event": outcome.state, "number": number, "configuration": configuration, **facts})
    elif outcome.state == "stopped":
        after = f"stopped after step {max(outcome.curve)}: {outcome.reason}"
        say(f"{number:4d}  {after}  {one_line(configuration)}")
    elif outcome.state == "failed":
        say(f"{number:4d}  failed: {outcome.reason}  {one_line(configuration)}")
    else:
        best = tuner.best.value
        improves = all(t.value != best for t in tuner.trials.observed if t.number != number)
        mark = "*" if outcome.value == best and improves else " "
        values = f"{outcome.value:<10.6g}{mark} best {best:<10.6g}"
        others = f"  {one_line(outcome.outputs)}" if outcome.outputs else ""
        say(f"{number:4d}  {values}  {one_line(configuration)}{others}")
        for remark in tuner.source.remarks(tuner.trials.observed, number):
            note(f"{number}: {remark}")


def _conclude(
    tuner: Tuner, journal: Path, failures: int, give_up: int, stopped: str, *, json: bool
) -> None:
    trials = tuner.trials
    why = stopped or tuner.stop_reason or f"{failures} evaluations in a row failed"
    certificate = tuner.certificate
    if json:
        emit(
            {
                "event": "finished",
                "reason": why,
                "complete": len(trials.observed),
                "failed": len(trials.failed),
                "stopped": len(trials.stopped),
                "pending": len(trials.pending),
                "best": asdict(tuner.best) if trials.observed else None,
                "certificate": certificate.as_dict(),
                "alarm": None if tuner.alarm is None else asdict(tuner.alarm),
                "trust": tuner.trust,
            }
        )
    else:
        say(f"done: {why}")
        if trials.stopped:
            say(f"{len(trials.stopped)} runs were stopped early; {trials.saved} steps were saved")
        if trials.observed:
            say(f"best {tuner.best.value:.6g}  {one_line(tuner.best.x)}")
            if tuner.source.rules or (tuner.stop_at is not None and str(certificate) not in why):
                say(str(certificate))
        note(f"journal: {journal}")
    elsewhere = [t for t in trials.pending if t.note.owner and is_alive(t.note.owner) is None]
    if elsewhere and not stopped and failures < give_up:
        note(_missing(elsewhere, tuner))
        raise typer.Exit(PENDING_ELSEWHERE)
    if stopped and not trials.failed:
        raise typer.Exit(1 if tuner.alarm is not None or not trials.observed else 0)
    if not trials.observed or failures >= give_up:
        last = trials.failed[-1].note.reason if trials.failed else "nothing was evaluated"
        note(f"metakel: {failures} evaluations in a row failed, the last with: {last}")
        note(_advice(tuner, journal))
        raise typer.Exit(NOTHING_SUCCEEDED)


def _missing(elsewhere: Sequence[Trial], tuner: Tuner) -> str:
    hosts = sorted({str((t.note.owner or {}).get("host", "another machine")) for t in elsewhere})
    longest = max((seconds for t in elsewhere if (seconds := age(t)) is not None), default=0.0)
    return (
        f"metakel: {len(elsewhere)} of {tuner.run.spent} evaluations are pending on "
        f"{', '.join(hosts)}, for {duration(longest)} at most; their processes cannot be looked up "
        "from here. If they are dead, the same command with --adopt-after SECONDS, more than an "
        "evaluation takes, runs these again; else wait for their values"
    )


def _advice(tuner: Tuner, journal: Path) -> str:
    trials = tuner.trials
    if not trials.observed:
        return (
            "was the command at fault? Fix it and start again, with --same-task if its words "
            "change: as nothing has succeeded, these failures will not count. If it was not, a "
            "larger --give-up looks further away"
        )
    return (
        "failed evaluations count towards the budget "
        f"({tuner.run.spent} of {tuner.budget} are spent), and their neighbourhood is avoided. Was "
        f"the command at fault? Take them back (metakel tell {journal} --drop --number "
        f"{trials.failed[-1].number}), or begin another journal. If it was not, the same command "
        "goes on"
    )


def _as_in_the_command(prior: Prior, command: Sequence[str]) -> tuple[Prior, list[str]]:
    """A prior of the library with the names of the command, and defaults of what it leaves out."""
    if not prior.info.model:
        return prior, []
    placeholders = tuple(re.findall(r"\{([A-Za-z_][\w.-]*)\}", " ".join(command)))
    prior = spelled(prior, placeholders)
    entry = ENTRIES[prior.info.model]
    left = [name for name in prior.space.free if name not in placeholders]
    if len(left) == len(prior.space.free):  # it reads METAKEL_CONFIGURATION
        return prior, []
    return prior, [f"{name}={entry.defaults[entry.spelled(name)]}" for name in left]
