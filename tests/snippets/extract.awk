# C++ blocks of Markdown files, each as a function of its own.
#
#   awk -f extract.awk README.md docs/*.md > snippets.cc
#
# Names that a block uses and does not declare stand in a comment before it, which readers of the
# page do not see:
#
#   <!-- snippet
#   Session& session = Any<Session>();
#   -->
#
# `<!-- no snippet: WHY -->` before a block leaves it out.
BEGIN {
  print "// Made from the documentation by tests/snippets/extract.awk."
  print "#include \"tests/snippets/prelude.h\""
}
FNR == 1 { if (block || prelude) fail("the file before this one ends within a block"); without = 0 }
/^<!-- snippet$/ { prelude = 1; before = ""; next }
/^<!-- no snippet: .*-->$/ { without = 1; next }
prelude && /^-->$/ { prelude = 0; next }
prelude { before = before "#line " FNR " \"" FILENAME "\"\n" $0 "\n"; next }
/^```(cpp|c\+\+)$/ { block = 1; text = ""; next }
block && /^```$/ {
  block = 0
  if (!without) {
    ++count
    print "namespace snippet_" count " {"
    print "using namespace millrace;"
    print "namespace mr = millrace;"
    print "[[maybe_unused]] Status Run() {"
    printf "%s%s", before, text
    print "return OkStatus();"
    print "}"
    print "}"
  }
  before = ""
  without = 0
  next
}
block && /^#include/ { next }
block { text = text "#line " FNR " \"" FILENAME "\"\n" $0 "\n" }
function fail(why) { print FILENAME ":" FNR ": " why > "/dev/stderr"; exit 1 }
END {
  if (count < 10) fail("only " count " blocks: are the pages given?")
}
