"""Train 30 perceptrons with random settings, and end hopeless runs early by curves of the library.

Needs ``pip install metakel[sklearn]``.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from metakel import library

EPOCHS, RUNS = 20, 30
X, y = load_digits(return_X_y=True)
train, test, y_train, y_test = train_test_split(X[:900], y[:900], test_size=300, random_state=0)
train, test = (StandardScaler().fit(train).transform(part) for part in (train, test))
space, curves = library.load("mlp").space, library.curves("mlp").at(delta=0.2)


def losses(width, depth, **settings):
    network = MLPClassifier((width,) * depth, random_state=0, **settings)
    for _ in range(EPOCHS):
        network.partial_fit(train, y_train, classes=range(10))
        yield log_loss(y_test, network.predict_proba(test), labels=range(10))


seen, ends = [], []
for x in space.decode(space.sample(np.random.default_rng(0), RUNS)):
    curve, training = {}, losses(**x)
    for epoch, loss in enumerate(training, start=1):
        curve[epoch] = loss
        if curves.decide(curve, seen, EPOCHS).stop:
            break
    seen.append(curve)
    ends.append([loss, *training][-1])  # of stopped runs as well, only to see what was lost
saved, fate = 1 - sum(map(len, seen)) / (RUNS * EPOCHS), len(seen[int(np.argmin(ends))])
print(f"{saved:.0%} of {RUNS * EPOCHS} steps were saved; the best loss is {min(ends):.3f}")
print("the best run", "survived" if fate == EPOCHS else f"was stopped after step {fate}")
