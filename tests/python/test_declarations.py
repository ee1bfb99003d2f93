"""The declarations of the package are those of include/unmask.h."""

import re
import subprocess

from conftest import ROOT
from unmask._library import ffi, lib


def structs():
    """Returns the names of all structs that have members. cffi knows no size of the others."""

    def has_size(name):
        try:
            return ffi.sizeof(name) > 0
        except ffi.error:
            return False

    return [name for name in ffi.list_types()[0] if ffi.typeof(name).kind == "struct" and has_size(name)]


def test_sizes_and_offsets_are_those_of_the_compiler(tmp_path):
    expected = []
    source = ["#include <stdio.h>", '#include "unmask.h"', "int main(void) {"]
    for name in structs():
        source.append(f'    printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ffi.sizeof(name)}")
        for field, description in ffi.typeof(name).fields:
            source.append(
                f'    printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));'
            )
            expected.append(f"{name}.{field} {description.offset} {ffi.sizeof(description.type)}")
    (tmp_path / "sizes.c").write_text("\n".join([*source, "}"]))
    subprocess.run(["cc", "-I", ROOT / "include", "-o", tmp_path / "sizes", tmp_path / "sizes.c"], check=True)
    printed = subprocess.run([tmp_path / "sizes"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    assert len(printed) > 200 and printed == expected


def test_every_function_of_the_header_is_declared_and_in_the_library():
    header = (ROOT / "include" / "unmask.h").read_text()
    functions = set(re.findall(r"^UM_API [^(]*?(um_\w+)\(", header, re.MULTILINE))
    assert len(functions) > 40
    declared = {name for name in dir(lib) if name.startswith("um_")}
    assert declared == functions
    for name in functions:
        assert ffi.addressof(lib, name) != ffi.NULL


def test_every_constant_of_the_header_is_declared():
    header = (ROOT / "include" / "unmask.h").read_text()
    names = set()
    for body in re.findall(r"^enum \{(.*?)\};", header, re.MULTILINE | re.DOTALL):
        names |= set(re.findall(r"\bUM_[A-Z0-9_]+\b(?=\s*[,=/}\n]|$)", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)))
    names |= set(re.findall(r"X\((UM_\w+),", header))
    assert len(names) > 55
    assert names <= set(dir(lib))
