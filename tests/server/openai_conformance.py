"""Checks the real program with OpenAI's Python client. Each check is a function and a line of the output.

    UNMASK=build/unmask build/venv/bin/python tests/server/openai_conformance.py [NAME...]

The first check that needs a server starts it, on a free port of this machine. Prints TAP.
"""

import sys

import openai_chat  # noqa: F401: importing a module adds its checks, so the order matters
import openai_streams  # noqa: F401
import openai_completions  # noqa: F401
import openai_service  # noqa: F401
from openai_harness import run

sys.exit(run())
