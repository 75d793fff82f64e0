#!/usr/bin/env python3
"""Counts vague words in doc comments and documents, per 1,000 words.

    docs/prose.py                    prints one row per crate and one per document
    docs/prose.py --check            the same, and ends with 1 if a row is above a target
    docs/prose.py --check ROW...     checks only the named crates and documents

A crate's row counts its `///` and `//!` comments, a document's row its text. Code does not count, in blocks or in
back-ticks: names of tests are not prose.
A row with fewer words than WORDS_MIN passes with any rate: one word would decide it.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS_MIN = 200


@dataclass(frozen=True)
class Family:
    """Words that stand in place of a name."""

    name: str
    target: float
    words: frozenset[str]


FAMILIES = (
    Family("what", 3.0, frozenset({"what", "whatever"})),
    Family("who", 1.5, frozenset({"who", "whoever", "whom", "whose"})),
    Family("some", 3.0, frozenset({"somebody", "something", "others", "nobody", "anybody", "everybody"})),
)


def tracked_files() -> list[str]:
    """Returns the files of the repository, without test data."""
    output = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True, text=True)
    return [name for name in output.stdout.split("\0") if name and "/testdata/" not in name]


def crates() -> list[str]:
    """Returns the folders of the workspace's members, inner ones first."""
    with open(ROOT / "Cargo.toml", "rb") as file:
        return sorted(tomllib.load(file)["workspace"]["members"], key=len, reverse=True)


def without_code(text: str) -> str:
    """Returns Markdown without its code."""
    blocks = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", " ", blocks)


def doc_comments(source: str) -> str:
    """Returns the text of a Rust file's doc comments."""
    return "\n".join(re.findall(r"^[ \t]*//[/!](?!/)[ \t]?(.*)$", source, flags=re.MULTILINE))


def count_words(text: str) -> Counter[str]:
    """Returns how often each word occurs, in lower case."""
    return Counter(word.lower() for word in re.findall(r"[A-Za-z']+", without_code(text)))


def collect() -> dict[str, Counter[str]]:
    """Returns the words of each row: crates and documents by their paths."""
    rows: dict[str, Counter[str]] = {}
    members = crates()
    for name in tracked_files():
        path = ROOT / name
        if name.endswith(".rs"):
            row = next((member for member in members if name.startswith(member + "/")), None)
            extract = doc_comments
        elif name.endswith(".md"):
            row, extract = name, str
        else:
            continue
        if row is not None and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            rows.setdefault(row, Counter()).update(count_words(extract(text)))
    return rows


def rates(words: Counter[str]) -> list[float]:
    """Returns the rate of each family, per 1,000 words."""
    total = max(1, words.total())
    return [1000 * sum(words[word] for word in family.words) / total for family in FAMILIES]


def is_within(words: Counter[str]) -> bool:
    """Returns whether a row meets all targets."""
    is_short = words.total() < WORDS_MIN
    return is_short or all(rate <= family.target for rate, family in zip(rates(words), FAMILIES))


def format_row(name: str, words: Counter[str]) -> str:
    """Formats one row; `*` marks a rate above its target."""
    cells = (f"{rate:7.1f}{'*' if rate > family.target else ' '}" for rate, family in zip(rates(words), FAMILIES))
    return f"{name:<28} {words.total():>7} {''.join(cells)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="end with 1 if a row is above a target")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="crates and documents [default: all]")
    arguments = parser.parse_args()

    found = collect()
    chosen = [row.removesuffix("/") for row in arguments.rows] or sorted(found)
    unknown = [row for row in chosen if row not in found]
    if unknown:
        parser.error(f"no crate and no document in git: {', '.join(unknown)}")

    print(f"{'per 1,000 words':<28} {'words':>7} " + "".join(f"{family.name:>7} " for family in FAMILIES))
    for row in sorted(chosen, key=lambda row: (row.endswith(".md"), row)):
        print(format_row(row, found[row]))
    total = sum((found[row] for row in chosen), Counter())
    print(format_row("total", total))
    print(f"{'target':<28} {'':>7} " + "".join(f"{family.target:7.1f} " for family in FAMILIES))

    above = [row for row in chosen if not is_within(found[row])]
    if arguments.check and above:
        print(f"above a target: {', '.join(above)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
