r"""What is made while the site is built: formulas, the command line, pages from beside docs/.

No script comes from the net. MkDocs calls the functions named ``on_...``; Griffe, which reads the
docstrings, uses `Formulas`.
"""

from __future__ import annotations

import posixpath
import re
import sys
import warnings
from functools import cache
from html import escape, unescape
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

import metakel

with warnings.catch_warnings():  # it finds its font in an old way
    warnings.simplefilter("ignore", DeprecationWarning)
    import ziafont
    import ziamath

ziafont.config.precision = 2
THEME_SCRIPT = re.compile(r'<script src="[^"]*assets/javascripts/bundle')
COMMANDS = "<!-- commands -->"
TALLEST = 12.0  # of a formula, in lines
SIZE, TEXT = 17.0, 16.0  # of a formula and of the text around it, whatever the unit

ROLE = re.compile(r":math:`([^`]+)`")
# The formula goes on for as long as lines are indented further than the directive.
DIRECTIVE = re.compile(r"^( *)\.\. math::[ \n]*(.*(?:\n\1 +\S.*)*)", re.M)
TABLE = re.compile(r"^(=+ +=[= ]*)\n((?:.*\n)?)=[= ]*\n((?:[^=].*\n)*)=[= ]*$", re.M)
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>([.,;:)]*)', re.S)
# Brackets have one size, and norms one kind of bars.
SPELLED = ((r"\\[Bb]ig(?![a-z])", ""), (r"\\[lr]Vert", r"\\|"), (r"\\[lr]vert", "|"))
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.S)
HTML_TABLE = re.compile(r"<table>.*?</table>", re.S)
CELL, MARK = re.compile(r"<td[^>]*>(.*?)</td>", re.S), re.compile(r"<[^>]+>")
ROOT = Path(__file__).parents[1]
SOURCE = "https://github.com/metakel/metakel/blob/main/"
# Files of the repository that are pages of the site, too.
BESIDE = {"benchmarks/TABLES.md": "benchmarks/tables.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<=\]\()([\w./-]+)(?=[#)])")
SHORT = 22  # characters of a cell that holds a number, with its unit or its limit


class Formulas(griffe.Extension):
    """Docstrings say ``.. math::`` and ``:math:``; Markdown says ``$$`` and ``$``."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called once for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(docstring: str) -> str:
    """The docstring with its formulas between dollars and its tables between bars."""
    displayed = DIRECTIVE.sub(_displayed, TABLE.sub(_tabulated, docstring))
    return ROLE.sub(lambda found: f"${found[1]}$", displayed)


def _tabulated(found: re.Match[str]) -> str:
    starts = [run.start() for run in re.finditer("=+", found[1])]
    cuts = [slice(a, b) for a, b in pairwise([*starts, None])]
    head, *body = [
        f"| {' | '.join(line[cut].strip() for cut in cuts)} |"
        for line in found[2].splitlines() + found[3].splitlines()
    ]
    return "\n".join([head, "|" + "---|" * len(cuts), *body, ""])


def _displayed(found: re.Match[str]) -> str:
    formula = " ".join(line.strip() for line in found[2].splitlines())
    return f"{found[1]}$$\n{found[1]}{formula}\n{found[1]}$$"


def on_config(config: Any, **kwargs: Any) -> Any:
    """Called by MkDocs once: the version stands at the foot of every page."""
    config["copyright"] = f"metakel {metakel.__version__}, MIT licence"
    return config


def on_files(files: Any, *, config: Any, **kwargs: Any) -> Any:
    """Called by MkDocs once: pages that are kept beside the programs that write them."""
    for place, name in BESIDE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **kwargs: Any) -> str:
    """Called by MkDocs with the text of every page, whose links are those of the repository."""
    name = page.file.src_uri
    place = next((p for p, n in BESIDE.items() if n == name), f"docs/{name}")
    markdown = LINK.sub(lambda found: link(found[0], place=place, name=name), markdown)
    if COMMANDS not in markdown:
        return markdown
    sys.path.insert(0, str(Path(__file__).parent))
    return markdown.replace(COMMANDS, import_module("command_help").commands_as_markdown())


def link(target: str, *, place: str, name: str) -> str:
    """Where a link between files leads on the site: to a page, or to the source on the web."""
    file = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
    if not (ROOT / file).exists():
        return target
    if file not in BESIDE and not file.startswith("docs/"):
        return SOURCE + file
    page = BESIDE.get(file, file.removeprefix("docs/"))
    return posixpath.relpath(page, posixpath.dirname(name) or ".")


def on_post_page(output: str, *, page: Any, **kwargs: Any) -> str:
    """Called by MkDocs with every finished page: what search needs comes before the theme."""
    script = get_relative_url("search-from-disk.js", page.url)
    return THEME_SCRIPT.sub(rf'<script src="{script}"></script>\g<0>', output, count=1)


def on_post_build(config: Any, **kwargs: Any) -> None:
    """Called by MkDocs at the end: the search index as a script, which opens without a server."""
    folder = Path(config["site_dir"]) / "search"
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"var __index = {index};\n", encoding="utf-8")


def on_page_content(html: str, **kwargs: Any) -> str:
    """Called by MkDocs with the body of every page."""
    html = DISPLAY.sub(lambda f: f'<div class="formula">{picture(f[1], inline=False)}</div>', html)
    html = HTML_TABLE.sub(_of_numbers, html)
    return INLINE.sub(
        lambda f: f'<span class="formula">{picture(f[1], inline=True)}{f[2]}</span>', html
    )


def _of_numbers(table: re.Match[str]) -> str:
    """A table with a number in most cells stands in a box of its own, which keeps them whole."""
    cells = [unescape(MARK.sub("", cell)).strip() for cell in CELL.findall(table[0])]
    numbers = [c for c in cells if len(c) <= SHORT and any(map(str.isdigit, c))]
    if 2 * len(numbers) < len(cells):
        return table[0]
    return f'<div class="numbers">{table[0]}</div>'


@cache
def picture(latex: str, *, inline: bool) -> str:
    """An SVG in the colour and on the baseline of the text, as large as the text asks for."""
    formula = spelled = unescape(latex).strip()
    for ours, theirs in SPELLED:
        spelled = re.sub(ours, theirs, spelled)
    drawn = ziamath.Latex(spelled, size=SIZE, color="currentColor", inline=inline)
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', drawn.svg())
    assert size is not None
    width, height = (float(number) / TEXT for number in size.groups())
    # ziamath draws brackets of \left and \right around a sum a hundred lines high: \Big does not.
    assert height < TALLEST, f"{formula} is drawn {height:.0f} lines high"
    style = (
        f"width:{width:.3f}em;height:{height:.3f}em;vertical-align:{drawn.getyofst() / TEXT:.3f}em"
    )
    attributes = f'role="img" aria-label="{escape(formula)}" style="{style}"'
    return drawn.svg().replace(size[0], attributes, 1)
