"""Compares two runs of an evaluation on the same questions.

    python -m unmask.eval compare A B

A and B are files of `unmask eval --output`, or samples_*.jsonl of lm-evaluation-harness. The test is paired: it looks
at the questions that one run answered rightly and the other wrongly (McNemar's test, exact).
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
from typing import Any, Dict, List, NamedTuple, Optional

from .errors import InvalidValueError

__all__ = ["Comparison", "compare"]


class Run(NamedTuple):
    """The answers of a run: of each question whether it is right, and tokens and passes where the file has them."""

    right: Dict[str, float]
    tokens: int
    passes: int


class Comparison(NamedTuple):
    """Two runs on the questions that both have.

    questions:       their number
    accuracy:        share of right answers of the first and of the second run
    difference:      second minus first
    standard_error:  of the difference
    only_first, only_second: questions that only this run answered rightly
    p_value:         probability of a split at least as uneven as this one if both were equally good
    tokens_per_forward: of both runs; None where a file lacks tokens or passes
    """

    questions: int
    accuracy: tuple
    difference: float
    standard_error: float
    only_first: int
    only_second: int
    p_value: float
    tokens_per_forward: tuple


def compare(first: Any, second: Any, filter: Optional[str] = None) -> Comparison:
    """Compares two files of results. Errors: InvalidValueError if a file has no results or the questions differ.

    filter: the filter of lm-evaluation-harness whose results count (gsm8k has "strict-match" and "flexible-extract").
            None: the first one in each file
    """
    a, b = read_run(pathlib.Path(first), filter), read_run(pathlib.Path(second), filter)
    if set(a.right) != set(b.right):
        odd = sorted(set(a.right) ^ set(b.right))[0]
        raise InvalidValueError(f"the runs have different questions: only one of them has {odd!r}")
    n = len(a.right)
    differences = [b.right[name] - a.right[name] for name in a.right]
    mean = sum(differences) / n
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / max(1, n - 1) / n)
    better, worse = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    return Comparison(
        questions=n,
        accuracy=(sum(a.right.values()) / n, sum(b.right.values()) / n),
        difference=mean,
        standard_error=spread,
        only_first=worse,
        only_second=better,
        p_value=sign_test(worse, better),
        tokens_per_forward=tuple(run.tokens / run.passes if run.tokens and run.passes else None for run in (a, b)),
    )


def sign_test(a: int, b: int) -> float:
    """Returns the two-sided probability of a split of a + b fair coins at least as uneven as this one."""
    n, most = a + b, max(a, b)
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, k) for k in range(most, n + 1)) / 2**n
    return min(1.0, 2 * tail)


def read_run(path: pathlib.Path, filter: Optional[str] = None) -> Run:
    """Reads a file of results, one JSON object per line. Of a task with several filters it reads one."""
    right: Dict[str, float] = {}
    tokens = passes = 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            filter = filter or row.get("filter")
            if row.get("filter", filter) != filter:
                continue
            name, value = _verdict(row)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidValueError(f"{path}:{number}: no result of an evaluation ({error})") from None
        if name in right:
            raise InvalidValueError(f"{path}:{number}: a second answer to question {name!r}")
        right[name] = value
        tokens += len(row.get("token_ids") or ()) or int(row.get("completion_tokens") or 0)
        passes += int(row.get("nfe") or 0)
    if not right:
        raise InvalidValueError(f"{path}: the file has no results" + (f" of the filter {filter!r}" if filter else ""))
    return Run(right, tokens, passes)


def _verdict(row: Dict[str, Any]) -> tuple:
    """Returns the name of a question and whether its answer is right, 0..1."""
    if "doc_id" in row:  # lm-evaluation-harness
        metrics: List[str] = list(row["metrics"])
        return str(row["doc_id"]), float(row[metrics[0]])
    return str(row["id"]), float(row["correct"])


def _shown(value: Optional[float], form: str) -> str:
    return "-" if value is None else format(value, form)


def report(first: str, second: str, c: Comparison) -> str:
    """Returns the comparison as text."""
    rows = [
        f"questions          {c.questions}",
        f"accuracy           {100 * c.accuracy[0]:.1f} % ({first}), {100 * c.accuracy[1]:.1f} % ({second})",
        f"difference         {100 * c.difference:+.1f} points, standard error {100 * c.standard_error:.1f}",
        f"right in one only  {c.only_first} in the first, {c.only_second} in the second",
        f"p value            {c.p_value:.3g} (exact McNemar test)",
        f"tokens/forward     {_shown(c.tokens_per_forward[0], '.2f')}, {_shown(c.tokens_per_forward[1], '.2f')}",
    ]
    return "\n".join(rows)


def main(arguments: Optional[List[str]] = None) -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m unmask.eval", description="Compares evaluations.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("compare", help="compare two runs on the same questions")
    command.add_argument("first", help="file of `unmask eval --output`, or samples_*.jsonl of lm-evaluation-harness")
    command.add_argument("second")
    command.add_argument("--filter", help="filter of lm-evaluation-harness whose results count (default: the first)")
    command.add_argument("--json", action="store_true", help="print a JSON object")
    given = parser.parse_args(arguments)
    try:
        result = compare(given.first, given.second, given.filter)
    except (InvalidValueError, OSError) as error:
        print(f"unmask.eval: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result._asdict()) if given.json else report(given.first, given.second, result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
