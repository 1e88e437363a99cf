// SPDX-License-Identifier: Apache-2.0
#include "tools/install/exports.h"

#include <gtest/gtest.h>

namespace millrace::exports {
namespace {

PublicNames NamesOf(std::string_view header) {
  PublicNames names;
  ReadHeader(header, names);
  return names;
}

constexpr char kHeader[] = R"(
// class Commented { };
namespace millrace {
class Node;  // the engine's
struct GraphState;
class Session {
 public:
  ~Session();
  static StatusOr<Session> Create(const Graph& graph);
  int runs() const;
 private:
  struct Impl;
  Impl* impl_;
  static const long kLimit = 1'000'000;
};
class Graph final {};
class [[nodiscard]] Status {};
template <typename T> class StatusOr {};
enum class Mode { kFast };
Output Sum(const Graph& graph, Mode mode, const char* text = "Invented(");
Node* NodeOf(const Graph& graph);
extern const char* const kName;
namespace ops { int Add(int a, int b); }
}  // namespace millrace
)";

TEST(PublicNamesTest, AreThoseThatHeadersDefine) {
  const PublicNames names = NamesOf(kHeader);
  for (const char* scope : {"millrace", "ops", "Session", "Graph", "StatusOr", "Mode", "Status"}) {
    EXPECT_TRUE(names.scopes.contains(scope)) << scope;
  }
  for (const char* scope : {"Impl", "Node", "GraphState", "Commented", "T"}) {
    EXPECT_FALSE(names.scopes.contains(scope)) << scope;
  }
  EXPECT_TRUE(names.declared.contains("Node"));
  EXPECT_TRUE(names.called.contains("Sum"));
  EXPECT_FALSE(names.called.contains("Invented"));
}

TEST(PublicNamesTest, SurviveLiteralsAndCommentsThatDoNotEnd) {
  for (const char* text : {"\"", "'", "/*", "//", "a \"b\\", "1'", "class", "enum class",
                           "namespace", "struct <", "class [[", ""}) {
    NamesOf(text);
  }
}

TEST(ExportsTest, HaveWhatTheHeadersDeclare) {
  const PublicNames names = NamesOf(kHeader);
  for (const char* symbol :
       {"millrace::Session::Create(millrace::Graph const&)", "millrace::Session::~Session()",
        "millrace::Session::runs() const", "millrace::ops::Add(int, int)", "millrace::kName",
        "millrace::Sum(millrace::Graph const&, millrace::Mode, char const*)",
        "millrace::NodeOf(millrace::Graph const&)", "vtable for millrace::Session",
        "typeinfo name for millrace::Graph",
        "millrace::StatusOr<millrace::Session>::StatusOr(millrace::StatusOr<millrace::Session>&&)",
        "std::vector<int, std::allocator<int> > millrace::Sum<int>(millrace::Graph const&)",
        "millrace::Session::operator=(millrace::Session&&)", "millrace::Session::kLimit"}) {
    EXPECT_TRUE(IsPublic(symbol, names)) << symbol;
  }
}

TEST(ExportsTest, HaveNothingElse) {
  const PublicNames names = NamesOf(kHeader);
  for (const char* symbol :
       {"millrace::Session::Impl::Run()", "vtable for millrace::Session::Impl",
        "millrace::Node::name() const", "millrace::Executor::Run()", "millrace::Optimize(int)",
        // Another function of the same name, for the engine's own types.
        "millrace::Sum(millrace::DataflowGraph*)",
        "millrace::Sum(absl::debian3::Span<int>, millrace::Graph const&)",
        "millrace::Session::Add(google::protobuf::Message const&)",
        "millrace::(anonymous namespace)::Sum(millrace::Graph const&)", "std::cout",
        "google::protobuf::Message::~Message()", "main", "", "vtable for google::protobuf::Any",
        "std::vector<millrace::Session, std::allocator<millrace::Session> >::~vector()",
        "other::Session::runs() const", "millrace", "millrace::"}) {
    EXPECT_FALSE(IsPublic(symbol, names)) << symbol;
  }
}

TEST(ExportsTest, AreAVersionScript) {
  EXPECT_EQ(VersionScript("MILLRACE_0.2", {"_Za", "_Zb"}),
            "MILLRACE_0.2 {\n  global:\n    _Za;\n    _Zb;\n  local:\n    *;\n};\n");
}

TEST(ExportsTest, AreFlagsForAProgram) {
  EXPECT_EQ(LinkFlags({"_Za"}), "-Wl,-u,_Za\n-Wl,--export-dynamic-symbol=_Za\n");
}

}  // namespace
}  // namespace millrace::exports
