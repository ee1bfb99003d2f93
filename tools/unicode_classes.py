#!/usr/bin/env python3
"""Writes src/text/classes_table.c from ranges of code points.

  tools/unicode_classes.py tests/data/tokenizers/pretok/unicode_classes.json > src/text/classes_table.c

A code point has two bits: 0 other, 1 letter, 2 number, 3 white space. They are in pages of 256 code points. Equal pages
are stored once.
"""
import json
import sys

CLASSES = (("L", 1), ("N", 2), ("White_Space", 3))
PAGE = 256
COLUMNS = 120


def rows(numbers, text):
    """Yields the numbers as lines of C."""
    line = "   "
    for n in numbers:
        item = " " + text % n + ","
        if len(line) + len(item) > COLUMNS:
            yield line
            line = "   "
        line += item
    yield line


def main():
    data = json.load(open(sys.argv[1]))
    of = bytearray(0x110000)
    for name, number in CLASSES:
        for first, last in data[name]:
            of[first:last + 1] = bytes([number]) * (last + 1 - first)
    pages, index = {}, []
    for start in range(0, len(of), PAGE):
        page = bytes(of[start:start + PAGE])
        index.append(pages.setdefault(page, len(pages)))
    words = []
    for page in pages:
        for k in range(0, PAGE, 32):
            words.append(sum(c << (2 * i) for i, c in enumerate(page[k:k + 32])))
    print("/* Letters, numbers and white space of Unicode %s. Written by tools/unicode_classes.py. */" % data["unicode"])
    print('#include "text/tok.h"\n')
    print("/* clang-format off */")
    print("const uint8_t um_class_page[%d] = {" % len(index))
    print("\n".join(rows(index, "%d")))
    print("};\n")
    print("const uint64_t um_class_bits[%d] = {" % len(words))
    print("\n".join(rows(words, "0x%x")))
    print("};")


main()
