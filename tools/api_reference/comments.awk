# SPDX-License-Identifier: Apache-2.0
# Headers as Doxygen reads them: comments before a declaration, and those behind one, become its
# documentation; the first one is the file's.
/^\/\/ SPDX/ || /^#/ || /^}  \/\/ / { print; trailing = 0; next }
# On a line of its own. It goes on with the comment behind a declaration if it stands as far to the
# right.
/^ *\/\// {
  at = index($0, "//")
  if (!opened) {
    opened = 1
    $0 = substr($0, 1, at - 1) "///  \\file\n///" substr($0, at + 2)
    print
  } else if (trailing && at >= trailing) {
    print substr($0, 1, at - 1) "///<" substr($0, at + 2)
  } else {
    trailing = 0
    print substr($0, 1, at - 1) "///" substr($0, at + 2)
  }
  next
}
/[;,{})] +\/\/ / && !/"[^"]*\/\/[^"]*"/ {
  at = index($0, "// ")
  trailing = at
  print substr($0, 1, at - 1) "///<" substr($0, at + 2)
  next
}
{ print; trailing = 0 }
