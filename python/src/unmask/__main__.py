"""`python -m unmask` is the command line program."""

import os
import pathlib
import sys


def main() -> None:
    """Replaces this process by the program."""
    program = pathlib.Path(__file__).resolve().parent / "bin" / "unmask"
    os.execv(program, ["unmask", *sys.argv[1:]])


if __name__ == "__main__":
    main()
