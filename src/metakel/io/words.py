"""What names of columns and words in cells say: measured values, times, bookkeeping, failures.

English and German words.
"""

from __future__ import annotations

import re
import unicodedata


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Outputs of which one wants less.
SMALL_IS_GOOD = _words(
    "loss error err rmse mse mae mape msle nll deviance perplexity ppl wer cer regret risk cost "
    "costs price time seconds secs duration runtime walltime latency misclassification "
    "fehler verlust kosten preis zeit dauer"
)
# Outputs whose name says nothing of the direction.
NEUTRAL = _words("value values objective zielwert zielgroesse")
# Nearly always, more is wanted of these.
SCORES = _words("score scores punkte")
# Ends of compound words, as in logloss and Validierungsfehler.
LOSSES = ("loss", "error", "rmse", "fehler", "verlust")
# sklearn's neg_mean_squared_error and the like are scores.
NEGATED = frozenset({"neg", "negative", "minus"})
# Columns of numbers that are measured. A cost or a risk may be a setting.
METRICS = _words(
    "loss error rmse mse mae mape msle nll deviance perplexity wer cer regret auc auroc roc auprc "
    "accuracy acc bacc f1 fscore precision recall specificity sensitivity kappa mcc r2 score brier "
    "throughput latency yield conversion purity impurity selectivity "
    "fehler verlust genauigkeit trefferquote ausbeute umsatz reinheit selektivitat"
)
# Of these, shares: within 0 and 1, or 0 and 100 per cent.
SHARES = _words(
    "auc auroc auprc accuracy acc bacc f1 fscore precision recall specificity sensitivity yield "
    "conversion purity selectivity pct percent prozent "
    "genauigkeit trefferquote ausbeute umsatz reinheit selektivitat"
)
# Words that say which measurement it is, as in accuracy_test or fit_time_s.
QUALIFIERS = _words(
    "train training val valid validation test holdout heldout oof cv fold mean avg std sd min max "
    "final best last s ms sec mb gb pct percent hplc gc nmr lcms uv isolated crude"
)
# A time is a setting in a laboratory; after these words it was measured.
TIMED = _words(
    "fit train training eval evaluation predict prediction inference score scoring run wall cpu "
    "elapsed total"
)
TIMES = _words(
    "time times seconds secs sec minutes hours duration zeit dauer sekunden minuten stunden"
)
# Times only after another word of time, or in brackets: min_child_weight and eta_min are settings.
SHORT_UNITS = _words("min s ms sec h hr hrs std")
IN_BRACKETS = re.compile(r"[\[(]\s*(min|s|ms|sec|h|hrs?|std)\.?\s*[\])]\s*$", re.IGNORECASE)
TIMED_TIMES = _words("elapsed runtime walltime laufzeit rechenzeit trainingszeit")
# By themselves, how long a run took: a laboratory says of what it is the time.
SECONDS = _words("seconds secs sec sekunden")
BOOKKEEPING = _words(
    "seed id uuid guid idx index host hostname pid worker status fold repeat replicate rep trial "
    "run timestamp date datetime created updated started finished submitted commit sha git user "
    "username author comment comments remark remarks note notes description path file filename "
    "url suggestion startwert zufallszahl rechner benutzer nutzer bearbeiter datum zeitstempel "
    "bemerkung bemerkungen kommentar notiz notizen lauf nr nummer pfad datei"
)
TEXTS = _words(
    "path file filename url host hostname user note notes comment description pfad datei"
)
# Who did it, where the whole name says so: a mutation operator is a setting.
PEOPLE = _words("operator technician analyst chemist experimenter laborant")

# Of cells, in lower case

# Missing in a column of numbers. In a column of text "none" may be a choice like any other.
MISSING = frozenset({"", "na", "nan", "n/a", "#n/a", "null", "none", "-", "--", "–", "—", "?"})
# What people write instead of an output when a run gave none; case does not matter. Where most
# outputs are numbers, any other word means that, too.
FAILED = frozenset(
    {"failed", "fail", "failure", "error", "crash", "crashed", "timeout", "aborted", "killed"}
    | {"#div/0!", "#num!", "#value!", "n.d.", "n. d.", "n.a.", "n. a."}  # not determined
    | {"fehlgeschlagen", "fehlschlag", "fehler", "abgebrochen", "abbruch", "gescheitert"}
)
# Words in a status that say that a run gave its value.
DONE = frozenset(
    {"ok", "okay", "success", "successful", "succeeded", "done", "complete", "completed"}
    | {"finished", "passed", "valid", "true", "1", "0k"}
)
NOT_DONE = FAILED | frozenset(
    {"diverged", "oom", "out of memory", "cancelled", "canceled", "invalid", "false"}
)
# Words of runs that were stopped or are not done: they say nothing of where runs fail.
UNFINISHED = frozenset({"pruned", "running", "waiting", "pending", "scheduled", "stopped"})
# Words of rows of a table that will not be run, or do not count.
LEFT_OUT = frozenset(
    {"not done", "not run", "not tried", "skip", "skipped", "left out", "omitted", "drop"}
    | {"dropped", "nicht gemacht", "ausgelassen", "weggelassen", "entfällt"}
)
# Formulas and words that wait for what is still to be measured.
NOT_YET = frozenset(
    {"#div/0!", "#value!", "#n/a", "#num!", "#ref!", "#name?", "-", "?"}
    | {"tbd", "t.b.d.", "todo", "to do", "open", "planned"}
    | {"offen", "geplant", "ausstehend", "läuft"}
)
# These mean that a run failed to some, and to others that nobody looked.
UNSURE = frozenset({"n.d.", "n. d.", "n.a.", "n. a."})
STATUS_NAMES = frozenset({"status", "state", "outcome", "result", "run_status", "run status"})


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case: ``valLogLoss``, ``val_log_loss`` and ``val log-loss``."""
    name = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return re.findall(r"[^\W_]+", apart.lower())


def small_is_good(name: str) -> bool:
    """Whether less is wanted of an output of this name."""
    words = words_of(name)
    if NEGATED & set(words):
        return False
    return any(w in SMALL_IS_GOOD | TIMED_TIMES or w.endswith(LOSSES) for w in words)


def says_no_direction(name: str) -> bool:
    """Whether the name of an output leaves open if more or less is wanted, as ``value`` does."""
    return set(words_of(name)) <= NEUTRAL


def is_score(name: str) -> bool:
    """Whether it is only called a score, of which more is wanted unless somebody says otherwise."""
    return bool(words_of(name)) and set(words_of(name)) <= SCORES


def is_time(name: str) -> bool:
    """Whether it is some time, measured or a setting: ``time (min)``, ``fit_time``, ``Dauer``."""
    words = words_of(name)
    if IN_BRACKETS.search(name):
        return True
    if len(words) > 1 and words[-1] in SHORT_UNITS:
        return words[-2] in TIMES | TIMED | TIMED_TIMES
    return bool(words) and words[-1] in TIMES


def is_metric(name: str) -> bool:
    """Whether a column of numbers with this name was measured: ``val_accuracy``, ``fit_seconds``.

    ``time`` alone may be a setting.
    """
    words = words_of(name)
    if set(words) & TIMED_TIMES or (set(words) & TIMED and is_time(name)):
        return True
    if words and set(words) <= SECONDS:
        return True
    while len(words) > 1 and words[-1] in QUALIFIERS:
        words.pop()
    return bool(words) and (words[-1] in METRICS or words[-1].endswith(LOSSES))


def is_share(name: str) -> bool:
    """Whether it is a part of a whole, as a share or in per cent: ``Yield (%)``, ``val_auc``."""
    return "%" in name or bool(SHARES & set(words_of(name)))


def is_bookkeeping(name: str, *, numbers: bool = False) -> bool:
    """Whether it says which run it was, and not how it was done: ``seed``, ``host``, ``run_id``.

    Of several words, the last may name a text: numbers in ``drop_path`` are a setting.
    """
    words = words_of(name)
    if numbers and len(words) > 1 and words[-1] in TEXTS:
        return False
    who = len(words) == 1 and words[0] in PEOPLE
    return who or (bool(words) and (words[-1] in BOOKKEEPING or words[-2:] == ["random", "state"]))
