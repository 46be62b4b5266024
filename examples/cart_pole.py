"""Reinforcement learning flavour: balance a cart-pole nobody has seen, with what others taught."""

import numpy as np

import metakel as mk

rng = np.random.default_rng(0)


def cart_pole():  # Barto, Sutton and Anderson (1983), with a pole and a push of its own
    half, mass, push = rng.uniform(0.3, 1.5), rng.uniform(0.05, 0.4), rng.uniform(6, 15)

    def score(
        kp, kd
    ):  # how long the pole stays up under push * (kp angle + kd speed), and how calm
        x = v = w = cost = 0.0
        angle = 0.15
        for step in range(250):
            force = push * np.clip(kp * angle + kd * w + 0.1 * x + 0.2 * v, -1, 1)
            sin, cos, total = np.sin(angle), np.cos(angle), 1 + mass
            thrust = (force + mass * half * w**2 * sin) / total
            spin = (9.8 * sin - cos * thrust) / (half * (4 / 3 - mass * cos**2 / total))
            v, x = v + 0.02 * (thrust - mass * half * spin * cos / total), x + 0.02 * v
            w, angle = w + 0.02 * spin, angle + 0.02 * w
            cost += 0.02 * (abs(angle) + 0.1 * abs(x)) + 0.001 * (force / push) ** 2
            if abs(angle) > 0.6 or abs(x) > 2.4:
                return cost + 0.02 * (250 - step)
        return cost

    return score


names, rows = ("cart", "kp", "kd", "cost"), []
for number in range(15):
    past = cart_pole()
    rows += [(f"cart {number}", *g, past(*g)) for g in rng.uniform([0, 0], [8, 3], size=(30, 2))]
table = dict(zip(names, zip(*rows, strict=True), strict=True))
history = mk.History.from_frame(table, task="cart", output="cost", minimize=True)
prior, new = mk.learn_prior(history, certify="none"), cart_pole()
learner, costs = prior.optimizer(rng=rng), []
for _ in range(8):
    learner.tell(x := learner.ask(), new(**x))
    costs.append(learner.best().value)
chance = [min(new(*g) for g in rng.uniform([0, 0], [8, 3], size=(8, 2))) for _ in range(20)]
print(f"best of 1, 3, 8 tries: {costs[0]:.3f}, {costs[2]:.3f}, {costs[7]:.3f}")
print(f"8 random tries reach {np.mean(chance):.3f} on average")
