"""Past Ax experiments propose the trials of the next one; needs ax-platform."""

import numpy as np
import pandas as pd
from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from ax.generation_strategy.external_generation_node import ExternalGenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy

import metakel as mk


class PriorNode(ExternalGenerationNode):
    def update_generator_state(self, experiment, data):
        self.arms, self.data = experiment.arms_by_name, data.df

    def get_next_candidate(self, pending_parameters):
        optimizer = self.prior.optimizer()
        for arm, loss in zip(self.data["arm_name"], self.data["mean"], strict=True):
            optimizer.tell(self.arms[arm].parameters, loss)
        optimizer.add_pending(pending_parameters)
        return optimizer.ask()


def run(seed, batches, *nodes):
    client, best = Client(random_seed=seed), np.random.default_rng(seed).normal(0.3, 0.1, 2)
    parameters = (RangeParameterConfig(name, (-1, 1), parameter_type="float") for name in "xy")
    client.configure_experiment(list(parameters))
    client.configure_optimization(objective="-loss")
    client.configure_generation_strategy(method="random_search")
    for node in nodes:
        client.set_generation_strategy(GenerationStrategy(nodes=[node]))
    for count in batches:
        for index, x in client.get_next_trials(max_trials=count).items():
            client.complete_trial(index, {"loss": np.sum((best - [x["x"], x["y"]]) ** 2)})
    return client.summarize().assign(task=seed)


past = pd.concat(run(seed, [10]) for seed in range(7))[["task", "x", "y", "loss"]]
past = mk.History.from_frame(past, task="task", output="loss", minimize=True)
PriorNode.prior = mk.learn_prior(past)
print(run(8, [2, 2, 2, 2], PriorNode("metakel"))[["x", "y", "loss"]])
