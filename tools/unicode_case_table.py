#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes kernels/text/unicode_case_table.cc: how letters change their case, by Unicode.

    python3 tools/unicode_case_table.py > kernels/text/unicode_case_table.cc
Needs a Python whose unicodedata is of Unicode 14. What that version added is left out: TensorFlow
2.21 has the tables of Unicode 13, and answers are to be the same.
"""
import sys
import textwrap
import unicodedata

ADDED = """888 890-891 898-89f 8c9-8d2 c3c 1734 180f 1ac1-1ace 1dfa 2c2f 2c5f a7c0-a7c1 a7d0-a7d1 a7d3
a7d5-a7d9 a7f2-a7f4 fbc2 10570-105bc 10780-107ba 10f82-10f85 11070 11073-11074 110c2 1aff0-1affe
1cf00-1cf46 1df00-1df1e 1e2ae""".split()
CHARACTERS = [chr(c) for c in range(1, 0x110000) if not 0xd800 <= c < 0xe000]
SIGMA, FINAL = "\u03a3", "\u03c2"


def added():
    codes = set()
    for part in ADDED:
        first, _, last = part.partition("-")
        codes.update(range(int(first, 16), int(last or first, 16) + 1))
    return codes


def runs(pairs):
    """[first, last, step, delta] of characters that change by the same number."""
    found = []
    for code, delta in pairs:
        if found and found[-1][3] == delta:
            first, last, step, _ = found[-1]
            if code - last == step or (first == last and code - last <= 2):
                found[-1][1:3] = [code, code - last]
                continue
        found.append([code, code, 1, delta])
    return found


def ranges(codes):
    found = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(kind, name, rows):
    print("const %s k%s[] = {" % (kind, name))
    words = " ".join("{%s}," % ",".join(row) for row in rows)
    print("\n".join(textwrap.wrap(words, 100, break_long_words=False)))
    print("};")


def main():
    if unicodedata.unidata_version != "14.0.0":
        sys.exit("this Python has Unicode %s, not 14" % unicodedata.unidata_version)
    later = added()
    known = [c for c in CHARACTERS if ord(c) not in later]
    print("// SPDX-License-Identifier: Apache-2.0\n"
          "// Tables of Unicode 13, written by tools/unicode_case_table.py.\n"
          '#include "kernels/text/unicode_case_table.h"\n\n'
          "namespace millrace {\n\n// clang-format off")
    whole = {}
    for name, change in (("Lower", str.lower), ("Upper", str.upper)):
        changed = [(c, change(c)) for c in known if change(c) != c]
        single = runs([(ord(a), ord(b) - ord(a)) for a, b in changed if len(b) == 1])
        whole[name] = [(a, b) for a, b in changed if len(b) > 1]
        table("CaseRun", name, [("0x%x" % a, "0x%x" % b, str(s), str(d)) for a, b, s, d in single])
    for name, pairs in whole.items():
        table("CaseText", name + "Text", [
            ("0x%x" % ord(a), '"%s"' % "".join("\\x%02x" % x for x in b.encode()))
            for a, b in pairs])
    # A capital sigma shows which characters are letters with a case, and which are passed over.
    cased = [c for c in known if (c + SIGMA).lower().endswith(FINAL)]
    letters = set(cased)
    passed = [c for c in known
              if ("A" + c + SIGMA).lower().endswith(FINAL) and c not in letters]
    for name, characters in (("Cased", cased), ("Passed", passed)):
        table("CodeRange", name,
              [("0x%x" % a, "0x%x" % b) for a, b in ranges([ord(c) for c in characters])])
    print("// clang-format on\n")
    for name in ("Lower", "Upper", "LowerText", "UpperText", "Cased", "Passed"):
        kind = "CaseRun" if name in ("Lower", "Upper") else (
            "CaseText" if name.endswith("Text") else "CodeRange")
        print("std::span<const %s> %s() { return k%s; }" % (
            kind, {"Lower": "LowerRuns", "Upper": "UpperRuns", "LowerText": "LowerTexts",
                   "UpperText": "UpperTexts", "Cased": "CasedRanges",
                   "Passed": "PassedRanges"}[name], name))
    print("\n}  // namespace millrace")


if __name__ == "__main__":
    main()
