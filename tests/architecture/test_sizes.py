"""Laws of size and names: few arguments, few attributes, no class asked for, one spelling."""

from __future__ import annotations

import ast
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import metakel

HOME = Path(metakel.__file__).parent
NAMES = Path(__file__).parents[1] / "golden" / "public_names.json"
MOST_ARGUMENTS, MOST_ATTRIBUTES = 12, 15
# The arguments of scikit-learn's searches, and three of ours.
OF_THE_HOST = ["integrations/sklearn/search.py: __init__"]
LIKE_THE_HOST = ["metakel.integrations.sklearn.MetaKelSearchCV"]


def trees() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(HOME.rglob("*.py")):
        yield file.relative_to(HOME).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def test_no_public_name_takes_more_than_twelve_arguments():
    """Commands of the command line are no functions that anybody calls: theirs are options."""
    many = {
        f"{module}.{name}": len(public)
        for module, names in json.loads(NAMES.read_text(encoding="utf-8")).items()
        for name, arguments in names.items()
        if len(public := [a for a in arguments if not a.startswith("_")]) > MOST_ARGUMENTS
    }
    assert list(many) == LIKE_THE_HOST


def test_no_method_takes_more_than_twelve_arguments():
    many = []
    for where, tree in trees():
        if where.startswith("cli/"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
                names += [a.arg for a in node.args.kwonlyargs]
                if len([n for n in names if n not in ("self", "cls")]) > MOST_ARGUMENTS:
                    many.append(f"{where}: {node.name}")
    assert many == OF_THE_HOST


def attributes(cls: ast.ClassDef) -> set[str]:
    found = {
        node.target.id
        for node in cls.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and "ClassVar" not in ast.unparse(node.annotation)
    }
    for node in ast.walk(cls):
        stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if stored and isinstance(node.value, ast.Name) and node.value.id == "self":
            found.add(node.attr)
    return found


def test_no_class_has_more_than_fifteen_attributes():
    many = {
        f"{where}: {node.name}": len(found)
        for where, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and len(found := attributes(node)) > MOST_ATTRIBUTES
        if node.name != "FeatureEvaluator"  # the working set and the current point of the solver
    }
    assert not many


def test_nobody_asks_a_model_a_process_or_a_certificate_for_its_class():
    """They answer; a domain is looked at where a user gives it."""
    ours = "Model Mixture CertifiedModel SafeModel LearnedProcess ColdProcess WidenedProcess Box"
    ours += " Finite CandidateTable Certificate RegretScores RegretCalibration FixedWidth Factor"
    asked = [
        f"{where}: {ast.unparse(node)}"
        for where, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
        if {name.id for name in ast.walk(node) if isinstance(name, ast.Name)} & set(ours.split())
    ]
    assert not asked


def test_no_copy_is_changed_after_it_was_made():
    copied = [
        f"{where}: {ast.unparse(node)}"
        for where, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node) in ("copy(self)", "copy.copy(self)")
    ]
    assert not copied


BRITISH = re.compile(
    r"(?<![a-z])(centre|colour|neighbour|behaviour|favour|normalis|maximis|minimis|optimis|"
    r"regularis|recognis|standardis|initialis|summaris|randomis|penalis|labelled|modelled)"
)


def test_names_have_one_spelling():
    """The American one, as in the packages that ours are used with; prose is British."""
    assert BRITISH.search("the_centre_of")
    assert not BRITISH.search("minimize_center")
    found = []
    for file in sorted(HOME.rglob("*.py")):
        with file.open("rb") as stream:
            names = {
                t.string for t in tokenize.tokenize(stream.readline) if t.type == tokenize.NAME
            }
        found += [f"{file.name}: {name}" for name in names if BRITISH.search(name.lower())]
    assert not found
