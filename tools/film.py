#!/usr/bin/env python3
"""Draws the denoising of an answer as an SVG, with one row per forward pass.

The script runs examples/denoise, which prints every snapshot with masks as underscores. It draws a mask as a grey cell,
text that this pass wrote in green, and older text in white.

usage: tools/film.py [--model DIR] [--out FILE] [--passes N] PROMPT [NAME VALUE ...]      (after `make examples`)
"""
import argparse
import html
import subprocess

CELL, LINE, LEFT, TOP = 8.4, 22, 64, 18


def passes_of(program, model, prompt, parameters):
    """Returns [(number, text)] of all snapshots, and the line with the reason why the answer ended."""
    out = subprocess.run([program, model, prompt, *parameters], capture_output=True, text=True, check=True).stdout
    rows, end = [], ''
    for line in out.splitlines():
        if line.startswith('=>'): end = line[3:]
        elif line[:3].strip().isdigit(): rows.append((int(line[:3]), line[4:]))
    return rows, end


def spans(text, before):
    """Returns runs of (kind, start, string): 'mask', 'new' for text that differs from the row before, 'old'."""
    runs = []
    for i, c in enumerate(text):
        kind = 'mask' if c == '_' else 'old' if i < len(before) and before[i] == c else 'new'
        if runs and runs[-1][0] == kind: runs[-1][2].append(c)
        else: runs.append((kind, i, [c]))
    return [(kind, start, ''.join(chars)) for kind, start, chars in runs]


def draw(rows, prompt):
    width = LEFT + CELL * max([len(prompt) + 2] + [len(t) for _, t in rows]) + 20
    height = TOP + LINE * (len(rows) + 2)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
           f'height="{height}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">')
    yield '<rect width="100%" height="100%" rx="8" fill="#14171c"/>'
    yield f'<text x="16" y="{TOP + 6}" fill="#8a919e" xml:space="preserve">&gt; {html.escape(prompt)}</text>'
    before = ''
    for n, (number, text) in enumerate(rows):
        y = TOP + LINE * (n + 1) + 12
        yield f'<text x="{LEFT - 16}" y="{y}" fill="#5b6370" text-anchor="end">{number}</text>'
        for kind, start, run in spans(text, before):
            x = LEFT + start * CELL
            if kind == 'mask':
                for k in range(len(run)):
                    yield f'<rect x="{x + k * CELL + 0.7:.1f}" y="{y - 11}" width="{CELL - 1.4:.1f}" height="13" rx="1.5" fill="#2f353f"/>'
                continue
            fill = '#7ee787' if kind == 'new' else '#d7dce4'
            yield (f'<text x="{x:.1f}" y="{y}" fill="{fill}" textLength="{len(run) * CELL:.1f}" '
                   f'xml:space="preserve">{html.escape(run)}</text>')
        before = text
    yield '</svg>'


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument('prompt')
    a.add_argument('parameters', nargs='*', help='parameters of the request, name and value')
    a.add_argument('--model', default='models/tiny-block')
    a.add_argument('--program', default='build/examples/denoise')
    a.add_argument('--out', default='docs/denoising.svg')
    a.add_argument('--passes', type=int, default=14, help='draw at most this many passes, evenly spaced')
    opt = a.parse_args()
    rows, _ = passes_of(opt.program, opt.model, opt.prompt, opt.parameters)
    if len(rows) > opt.passes:
        rows = [rows[round(i * (len(rows) - 1) / (opt.passes - 1))] for i in range(opt.passes)]
    with open(opt.out, 'w', encoding='utf-8') as f: f.write('\n'.join(draw(rows, opt.prompt)) + '\n')
    print(f'{opt.out}: {len(rows)} passes')


if __name__ == '__main__': main()
