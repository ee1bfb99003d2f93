"""Draws an answer as a film: HTML in which the tokens appear in the order of the passes that wrote them.

The film needs no script, so that notebooks show it everywhere. CSS delays each token; a checkbox
restarts the animation.
"""

from __future__ import annotations

import html as markup
import itertools
from typing import List, Sequence

SECONDS = 4.0  # longest film
SECONDS_PER_PASS = 0.25

_counter = itertools.count(1)

_STYLE = """\
#{id} {{ font-family: monospace; white-space: pre-wrap; line-height: 1.6; max-width: 80ch }}
#{id} label {{ display: block; font-size: 80%; opacity: .6; cursor: pointer }}
#{id} input {{ display: none }}
#{id} span {{ border-radius: 3px; animation: {id}-a .6s ease-out calc(var(--p) * {delay}s) backwards }}
#{id} input:checked ~ span {{ animation-name: {id}-b }}
@keyframes {id}-a {{ from {{ color: transparent; background: #8886 }} 40% {{ background: #fc68 }} }}
@keyframes {id}-b {{ from {{ color: transparent; background: #8886 }} 40% {{ background: #fc68 }} }}
"""


def html(pieces: Sequence[str], steps: Sequence[int]) -> str:
    """Returns the film of an answer: the texts of its tokens, and the pass that wrote each, from 1.

    The passes are known when the answer has ended. Before that the text stands still.
    """
    if not pieces:
        return "<p>The answer has no tokens.</p>"
    if len(steps) < len(pieces):
        return f'<div style="font-family: monospace; white-space: pre-wrap">{markup.escape("".join(pieces))}</div>'
    name = f"unmask-{next(_counter)}"
    last = max(steps)
    delay = min(SECONDS_PER_PASS, SECONDS / last)
    spans: List[str] = [
        f'<span style="--p:{step - 1}" title="pass {step}">{markup.escape(piece)}</span>'
        for piece, step in zip(pieces, steps)
    ]
    style = _STYLE.format(id=name, delay=round(delay, 3))
    caption = f"{len(pieces)} tokens in {last} passes &#8635;"
    box = f'<input type="checkbox" id="{name}-again">'
    return (
        f'<style>{style}</style><div id="{name}">{box}<label for="{name}-again">{caption}</label>{"".join(spans)}</div>'
    )
