"""Ray Tune through OptunaSearch: pip install "ray[tune]".

Do not put ASHA or another scheduler that stops trials beside it: Ray tells Optuna the last value of
a stopped trial as if it were complete, and the model takes it for one.
"""

from __future__ import annotations

from past import RANGES, loss, past_studies
from ray import tune
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.optuna import OptunaSearch

from metakel.integrations.optuna import MetaKelSampler


def train(config: dict[str, float]) -> None:
    tune.report({"loss": loss(config["rate"], int(config["depth"]), 99)})


def main() -> None:
    search = OptunaSearch(metric="loss", mode="min", sampler=MetaKelSampler(past_studies(), seed=0))
    space = {"rate": tune.loguniform(*RANGES["rate"]), "depth": tune.randint(2, 11)}
    settings = tune.TuneConfig(
        search_alg=ConcurrencyLimiter(search, max_concurrent=2),
        metric="loss", mode="min", num_samples=8,
    )  # fmt: skip
    found = tune.Tuner(train, param_space=space, tune_config=settings).fit()
    print(f"{len(found)} trials, best {found.get_best_result().metrics['loss']:.4f}")


if __name__ == "__main__":
    main()
