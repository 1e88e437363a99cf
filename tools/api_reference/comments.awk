# SPDX-License-Identifier: Apache-2.0
# Headers as Doxygen reads them: comments before a declaration, and those behind one, become its
# documentation; the first one is the file's.
/^\/\/ SPDX/ || /^#/ || /^}  \/\/ / { print; trailing = 0; next }
# What a header's own macros (they end in _) make of a list is said where they are defined.
/^MR_[A-Z_]+_\(.*\);$/ { print ""; next }
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
# Where a comment begins that is not in a text; 0: nowhere.
function comment_at(line,    i, c, quoted) {
  for (i = 1; i <= length(line); ++i) {
    c = substr(line, i, 1)
    if (c == "\\") ++i
    else if (c == "\"") quoted = !quoted
    else if (!quoted && substr(line, i, 3) == "// ") return i
  }
  return 0
}
comment_at($0) && substr($0, 1, comment_at($0) - 1) ~ /[;,{})] +$/ {
  at = comment_at($0)
  if ($0 ~ /^ *(enum|struct) .*}; +\/\/ /) {  # a whole type on one line
    print "/** " substr($0, at + 3) " */ " substr($0, 1, at - 1)
    next
  }
  trailing = at
  text = substr($0, at + 2)
  # It is about all that are declared in the line.
  if (substr($0, 1, at - 1) ~ /^ *[A-Za-z_][A-Za-z_0-9:<>]* [a-z_0-9]+(, [a-z_0-9]+)+; +$/) {
    declared = substr($0, 1, index($0, ";") - 1)
    match(declared, /^ *[^ ]+ /)
    type = substr(declared, 1, RLENGTH)
    count = split(substr(declared, RLENGTH + 1), names, ", ")
    for (i = 1; i < count; ++i) printf "%s%s; /**<%s */", type, names[i], text
    print type names[count] ";  ///<" text
    next
  }
  print substr($0, 1, at - 1) "///<" text
  next
}
{ print; trailing = 0 }
