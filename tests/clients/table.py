"""Prints the table of docs/clients.md from the scripts of the clients: python3 tests/clients/table.py

A script has a line "# pip: PACKAGE==VERSION ..." for each call of pip, the client first, and @works(WHAT) or
@fails(WHAT, WHY, WORDS) before each check.
"""

import glob
import os
import re
import sys

os.chdir(os.path.dirname(__file__) or ".")
print("| client | version | works | does not work |\n|---|---|---|---|")
for path in sorted(glob.glob("*_client.py")):
    text = open(path).read()
    packages = re.findall(r"(\S+)==(\S+)", " ".join(re.findall(r"^# pip: (.*)", text, re.M)))
    name = path[:-len("_client.py")].replace("_", "-")
    version = [v for package, v in packages if package.split("[")[0] in (name, name + "-slim")]
    works = re.findall(r'^@works\("([^"]*)"\)', text, re.M)
    fails = re.findall(r'^@fails\("([^"]*)", "([^"]*)"', text, re.M)
    if not (version and works):
        sys.exit(f"{path} has no version of {name}, or no check")
    print(f"| `{name}` | {version[0]} | {', '.join(works)} | {'; '.join(f'{what}: {why}' for what, why in fails)} |")
