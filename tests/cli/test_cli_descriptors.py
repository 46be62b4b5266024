"""``learn --descriptor`` and ``suggest --descriptor``: what is known of a task, without Python."""

from __future__ import annotations

import json

import numpy as np
import pytest

from metakel import Prior

PAST = ("past.csv", "--task", "furnace", "--output", "yield", "-o", "p.json")


@pytest.fixture
def table(tmp_path):
    """Twelve furnaces: small ones like it hot, large ones cold."""
    rng, lines = np.random.default_rng(0), ["furnace,heat,volume,yield"]
    for s in range(12):
        large = s % 3 == 1
        for heat in rng.uniform(0, 1, 15):
            value = (heat if not large else 1 - heat) + rng.normal() * 0.01
            lines.append(f"f{s},{heat:.4f},{(50 if large else 5) + s / 10},{value:.5f}")
    path = tmp_path / "past.csv"
    path.write_text("\n".join(lines))
    return path


def test_a_descriptor_tells_the_kind_and_stays_with_the_journal(metakel, table):
    learned = metakel("learn", *PAST, "--descriptor", "volume")
    assert learned.code == 0, learned.err
    assert "told by volume" in learned.out
    chosen = {}
    for name, volume in (("small", "5.5"), ("large", "51")):
        said = ("suggest", "p.json", "--journal", f"{name}.jsonl", "--descriptor")
        found = metakel(*said, f"volume={volume}", "--json")
        assert found.code == 0, found.err
        (suggestion,) = json.loads(found.out)
        chosen[name] = suggestion["configuration"]["heat"]
        assert metakel("tell", f"{name}.jsonl", 0.9, "--number", 0).code == 0
    assert chosen["small"] > 0.8
    assert chosen["large"] < 0.2
    another = metakel("suggest", "p.json", "--journal", "large.jsonl")
    assert another.code != 0
    assert "begun with descriptors" in another.err
    beyond = metakel("suggest", "p.json", "--descriptor", "volume=900")
    assert beyond.code == 0
    assert "volume = 900 is beyond" in beyond.err
    for wrong in ("depth=3", "volume=big"):
        assert metakel("suggest", "p.json", "--descriptor", wrong).code != 0
    again = metakel("learn", *PAST, "--descriptor", "volume", "--journals", "large.jsonl")
    assert again.code == 0, again.err
    assert Prior.load("p.json").descriptors.values["volume"][-1] == 51.0
