"""What the name of a column says: whether a small output is good, or that it is no setting.

Words are English, German, French, Spanish, Italian and Portuguese, without accents.
"""

from __future__ import annotations

import re
import unicodedata

from metakel.errors import Hint, InputError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Outputs of which one wants less.
SMALL_IS_GOOD = _words(
    "loss error err rmse mse mae mape msle nll deviance perplexity ppl wer cer regret risk cost "
    "costs price time seconds secs duration runtime walltime latency misclassification "
    "fehler verlust kosten preis zeit dauer erreur perte cout prix temps duree perdida coste costo "
    "precio tiempo duracion errore perdita prezzo tempo durata erro perda custo duracao"
)
# Ends of compound words, as in logloss and Validierungsfehler.
LOSSES = ("loss", "error", "rmse", "fehler", "verlust")
# sklearn's neg_mean_squared_error and the like are scores.
NEGATED = frozenset({"neg", "negative", "minus"})
# Columns of numbers that are measured. A cost or a risk may be a setting.
METRICS = _words(
    "loss error rmse mse mae mape msle nll deviance perplexity wer cer regret auc auroc roc auprc "
    "accuracy acc bacc f1 fscore precision recall specificity sensitivity kappa mcc r2 score brier "
    "throughput latency fehler verlust genauigkeit trefferquote exactitude exactitud esattezza "
    "acuracia accuratezza erreur perte perdida errore perdita erro perda"
)
# Words that say which measurement it is, as in accuracy_test or fit_time_s.
QUALIFIERS = _words(
    "train training val valid validation test holdout heldout oof cv fold mean avg std sd min max "
    "final best last s ms sec mb gb pct percent"
)
# A time is a setting in a laboratory; after these words it was measured.
TIMED = _words(
    "fit train training eval evaluation predict prediction inference score scoring run wall cpu "
    "elapsed total calcul entrainement execution entrenamiento ejecucion calculo addestramento "
    "treinamento execucao"
)
TIMES = _words(
    "time times seconds secs sec minutes min hours duration ms s zeit dauer sekunden temps duree "
    "secondes tiempo duracion segundos tempo durata secondi duracao"
)
TIMED_TIMES = _words("elapsed runtime walltime laufzeit rechenzeit trainingszeit")
BOOKKEEPING = _words(
    "seed id uuid guid idx index host hostname pid worker status fold repeat replicate rep trial "
    "run timestamp date datetime created updated started finished submitted commit sha git user "
    "username author comment comments remark remarks note notes description path file filename "
    "url suggestion startwert zufallszahl rechner benutzer nutzer bearbeiter datum zeitstempel "
    "bemerkung bemerkungen kommentar notiz notizen lauf nr nummer pfad datei graine essai "
    "utilisateur auteur fichier chemin remarque remarques commentaire commentaires semilla prueba "
    "usuario autor archivo ruta fecha comentario comentarios observaciones nota notas seme semente "
    "utente commento commenti observacoes"
)


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


def is_metric(name: str) -> bool:
    """Whether a column of numbers with this name was measured: ``val_accuracy``, ``rmse``."""
    words = words_of(name)
    while len(words) > 1 and words[-1] in QUALIFIERS:
        words.pop()
    if not words:
        return False
    return is_measured_time(name) or words[-1] in METRICS or words[-1].endswith(LOSSES)


def is_measured_time(name: str) -> bool:
    """Whether it is the time that a run took: ``fit_seconds``, and not a setting like ``time``."""
    words = set(words_of(name))
    return bool(words & TIMED_TIMES or (words & TIMED and words & TIMES))


def is_time(name: str) -> bool:
    """Whether it is some time: measured, or a setting."""
    return bool(TIMES & set(words_of(name)))


def is_bookkeeping(name: str) -> bool:
    """Whether it says which run it was, and not how it was done: ``seed``, ``host``, ``run_id``."""
    words = words_of(name)
    return bool(words) and (words[-1] in BOOKKEEPING or words[-2:] == ["random", "state"])


def check_direction(output: str, minimize: bool | None) -> bool:
    """Whether small outputs are good; refused where the name says so and nobody else does."""
    if minimize is None and small_is_good(output):
        raise InputError(
            f"output {output!r} looks like something of which less is better, and larger is taken "
            "as better unless it is said",
            Hint("say that smaller is better", "minimize=True", "--minimize"),
            Hint("that larger is", "minimize=False", "--maximize"),
        )
    return bool(minimize)
