"""Every block of docs/python.md runs, and prints what the page shows."""

import contextlib
import io
import os
import re

import pytest

from conftest import ROOT

PAGES = ["docs/python.md"]


@pytest.mark.parametrize("page", PAGES)
def test_blocks_print_what_the_page_shows(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    build = os.environ["BUILD"]
    blocks = re.findall(
        r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )
    assert blocks
    names = {"__name__": page}
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code.replace("build/libunmask.so", f"{build}/libunmask.so"), page, "exec"), names)
        assert printed.getvalue() == expected
