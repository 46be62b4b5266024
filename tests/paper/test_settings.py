from __future__ import annotations

from reproduction.settings import ROLES, Streams


def first(streams: Streams, role="history") -> float:
    return float(streams.rng(role).random())


def test_seeds_draws_runs_and_roles_have_streams_of_their_own():
    base = Streams(0, 0, 0)
    others = [Streams(1, 0, 0), Streams(0, 1, 0), Streams(0, 0, 1)]
    values = [first(base), *map(first, others), *(first(base, r) for r in ROLES if r != "history")]
    assert len(set(values)) == len(values)


def test_runs_share_the_kernel_unless_it_is_fresh():
    assert first(Streams(0, 2, 0), "kernel") == first(Streams(0, 2, 9), "kernel")
    assert first(Streams(0, 2, 0), "kernel") != first(Streams(0, 3, 0), "kernel")
    fresh = [first(Streams(0, 2, run, fresh=True), "kernel") for run in (0, 9)]
    assert fresh[0] != fresh[1]
