"""OpenAI's Python client against the real program: every check is a function, a line and a number.

    UNMASK=build/unmask build/venv/bin/python tests/server/openai_conformance.py [NAME...]

Servers run on free ports of this machine; each is started by the first check that needs it. Prints TAP.
"""

import sys

import openai_chat  # noqa: F401: each module adds its checks, in this order
import openai_streams  # noqa: F401
import openai_completions  # noqa: F401
import openai_service  # noqa: F401
from openai_harness import run

sys.exit(run())
