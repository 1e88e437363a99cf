// SPDX-License-Identifier: Apache-2.0
// Optionals: what TensorFlow's branches hand to their gradients, through branches and loops, put
// into the graph and run as functions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "proto/graph.pb.h"
#include "tests/functions/function_text.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string Of(const std::string& field, const std::string& name, const std::string& value) {
  return NodeText(field, name, "OptionalFromValue", {value},
                  Attr("Toutput_types", "list { type: DT_FLOAT }"));
}
std::string Get(const std::string& name, const std::string& optional,
                const std::string& shape = "") {
  return GraphNode(name, "OptionalGetValue", {optional},
                   Attr("output_types", "list { type: DT_FLOAT }") +
                       Attr("output_shapes", StrCat("list { shape { ", shape, " } }")));
}
std::string VariantT() { return Attr("T", "type: DT_VARIANT"); }

class OptionalsTest : public ::testing::TestWithParam<bool> {
 protected:
  void Open(const std::string& text) {
    pb::GraphDef def;
    ASSERT_TRUE(ParseGraph(text, &def)) << text;
    const Status imported = graph_.ImportGraphDef(def.SerializeAsString());
    ASSERT_TRUE(imported.ok()) << imported;
    StatusOr<Session> session = Session::Create(graph_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::make_unique<Session>(*std::move(session));
  }
  StatusOr<Tensor> Run(const std::string& name, const std::vector<Feed>& feeds = {}) {
    const Output fetch = graph_.FindOperation(name).output(0);
    StatusOr<std::vector<Tensor>> values = session_->Run(feeds, std::span(&fetch, 1));
    if (!values.ok()) return values.status();
    return (*values)[0];
  }
  float Value(const std::string& name, const std::vector<Feed>& feeds = {}) {
    const StatusOr<Tensor> value = Run(name, feeds);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? value->scalar<float>() : -12345.0f;
  }
  bool Bool(const std::string& name) {
    const StatusOr<Tensor> value = Run(name);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() && value->scalar<bool>();
  }
  std::string Error(const std::string& name) {
    const Status status = Run(name).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  Graph graph_;
  std::unique_ptr<Session> session_;
};

TEST_F(OptionalsTest, HaveAValueOrNone) {
  Open(FloatConst("node", "c", 3) + Of("node", "some", "c") +
       GraphNode("none", "OptionalNone", {}) + GraphNode("has", "OptionalHasValue", {"some"}) +
       GraphNode("has_not", "OptionalHasValue", {"none"}) + Get("value", "some") +
       Get("no_value", "none") + Get("vector", "some", "dim { size: 2 }") +
       GraphNode("ints", "OptionalGetValue", {"some"},
                 Attr("output_types", "list { type: DT_INT32 }") +
                     Attr("output_shapes", "list { shape { } }")) +
       GraphNode("two", "OptionalGetValue", {"some"},
                 Attr("output_types", "list { type: DT_FLOAT type: DT_FLOAT }") +
                     Attr("output_shapes", "list { shape { } shape { } }")));
  EXPECT_TRUE(Bool("has"));
  EXPECT_FALSE(Bool("has_not"));
  EXPECT_EQ(Value("value"), 3);
  EXPECT_THAT(Error("no_value"), HasSubstr("The given optional does not have a value."));
  EXPECT_THAT(Error("vector"), HasSubstr("the expected shape for component 0"));
  EXPECT_THAT(Error("ints"), HasSubstr("the expected type for component 0"));
  EXPECT_THAT(Error("two"), HasSubstr("has 1 components, expected 2"));
}

TEST_F(OptionalsTest, AreAddedAndMadeZeroLikeTheirValues) {
  const std::string list =
      GraphNode("list", "EmptyTensorList", {"shape", "limit"},
                Attr("element_dtype", "type: DT_VARIANT") + Attr("shape_type", "type: DT_INT32"));
  const std::string ints =
      GraphNode("shape", "Const", {},
                Attr("dtype", "type: DT_INT32") +
                    Attr("value", "tensor { dtype: DT_INT32 tensor_shape { dim { size: 0 } } }")) +
      GraphNode("limit", "Const", {},
                Attr("dtype", "type: DT_INT32") +
                    Attr("value", "tensor { dtype: DT_INT32 tensor_shape {} int_val: -1 }"));
  const std::string of_variants = Attr("element_dtype", "type: DT_VARIANT");
  const std::string add = VariantT() + Attr("N", "i: 3");
  Open(FloatConst("node", "c", 3) + Of("node", "some", "c") +
       GraphNode("none", "OptionalNone", {}) +
       GraphNode("sum", "AddN", {"some", "some", "some"}, add) + Get("nine", "sum") +
       GraphNode("zeros", "ZerosLike", {"some"}, VariantT()) + Get("zero", "zeros") +
       GraphNode("mixed", "AddN", {"some", "none", "some"}, add) +
       GraphNode("of_mixed", "OptionalHasValue", {"mixed"}) +
       GraphNode("nones", "AddN", {"none", "none", "none"}, add) +
       GraphNode("of_nones", "OptionalHasValue", {"nones"}) + ints + list +
       GraphNode("push", "TensorListPushBack", {"list", "some"}, of_variants) +
       GraphNode("lists", "AddN", {"push", "push", "push"}, add) +
       GraphNode("pop", "TensorListPopBack", {"lists", "shape"}, of_variants) +
       Get("from_list", "pop:1") + GraphNode("no_lists", "ZerosLike", {"push"}, VariantT()) +
       GraphNode("pop_zero", "TensorListPopBack", {"no_lists", "shape"}, of_variants) +
       Get("zero_from_list", "pop_zero:1") +
       GraphNode("both", "AddN", {"push", "some", "push"}, add) +
       GraphNode("of_both", "OptionalHasValue", {"both"}));
  EXPECT_EQ(Value("nine"), 9);
  EXPECT_EQ(Value("zero"), 0);
  EXPECT_FALSE(Bool("of_nones"));
  EXPECT_THAT(Error("of_mixed"), HasSubstr("one has a value and the other doesn't"));
  EXPECT_EQ(Value("from_list"), 9);
  EXPECT_EQ(Value("zero_from_list"), 0);
  EXPECT_THAT(Error("of_both"), HasSubstr("not all lists or all optionals"));
}

// exp(x) * x in one branch, which keeps exp(x) for the gradient, as TensorFlow's cond does.
TEST_P(OptionalsTest, BranchesHandThemToTheirGradients) {
  const std::string out =
      " output_arg { name: 'y' type: DT_FLOAT } output_arg { name: 'kept' type: DT_VARIANT } }\n";
  const auto signature = [](const std::string& name) {
    return StrCat("library { function { signature { name: '", name, "'");
  };
  const std::string x = " input_arg { name: 'x' type: DT_FLOAT }";
  const std::string grad_args =
      x +
      " input_arg { name: 'kept' type: DT_VARIANT } output_arg { name: 'dx' type: DT_FLOAT } }\n";
  const std::string then =
      signature("Then") + x + out + BodyNode("e", "Exp", {"x"}, FloatT()) +
      BodyNode("p", "Mul", {"e:y:0", "x"}, FloatT()) + Of("node_def", "o", "e:y:0") +
      " ret { key: 'y' value: 'p:z:0' } ret { key: 'kept' value: 'o:optional:0' } } }\n";
  const std::string other = signature("Else") + x + out + BodyNode("o", "OptionalNone", {}) +
                            " ret { key: 'y' value: 'x' }"
                            " ret { key: 'kept' value: 'o:optional:0' } } }\n";
  const std::string then_grad = signature("ThenGrad") + grad_args +
                                BodyNode("e", "OptionalGetValue", {"kept"},
                                         Attr("output_types", "list { type: DT_FLOAT }") +
                                             Attr("output_shapes", "list { shape { } }")) +
                                FloatConst("node_def", "one", 1) +
                                BodyNode("next", "AddV2", {"x", "one:output:0"}, FloatT()) +
                                BodyNode("dx", "Mul", {"e:components:0", "next:z:0"}, FloatT()) +
                                " ret { key: 'dx' value: 'dx:z:0' } } }\n";
  const std::string other_grad = signature("ElseGrad") + grad_args +
                                 FloatConst("node_def", "one", 1) +
                                 " ret { key: 'dx' value: 'one:output:0' } } }\n";
  const std::string lower = Attr("_lower_using_switch_merge", GetParam() ? "b: true" : "b: false") +
                            Attr("Tcond", "type: DT_BOOL");
  Open(then + other + then_grad + other_grad +
       GraphNode("p", "Placeholder", {}, Attr("dtype", "type: DT_BOOL")) +
       FloatConst("node", "x", 2) +
       GraphNode("if", "StatelessIf", {"p", "x"},
                 lower + Attr("Tin", "list { type: DT_FLOAT }") +
                     Attr("Tout", "list { type: DT_FLOAT type: DT_VARIANT }") +
                     Func("then_branch", "Then") + Func("else_branch", "Else")) +
       GraphNode("grad", "StatelessIf", {"p", "x", "if:1"},
                 lower + Attr("Tin", "list { type: DT_FLOAT type: DT_VARIANT }") +
                     Attr("Tout", "list { type: DT_FLOAT }") + Func("then_branch", "ThenGrad") +
                     Func("else_branch", "ElseGrad")) +
       GraphNode("dx", "Identity", {"grad"}, FloatT()));
  const Output p = graph_.FindOperation("p").output(0);
  EXPECT_NEAR(Value("dx", {{p, Tensor::Scalar<bool>(true)}}), 3 * 7.389056, 1e-4);
  EXPECT_EQ(Value("dx", {{p, Tensor::Scalar<bool>(false)}}), 1);
}

INSTANTIATE_TEST_SUITE_P(LoweredOrNot, OptionalsTest, ::testing::Bool());

TEST_F(OptionalsTest, AnIteratorGivesNoneAtItsEnd) {
  const std::string types =
      Attr("output_types", "list { type: DT_INT64 }") + Attr("output_shapes", "list { shape { } }");
  const auto number = [](const std::string& name, int value) {
    return GraphNode(
        name, "Const", {},
        Attr("dtype", "type: DT_INT64") +
            Attr("value",
                 StrCat("tensor { dtype: DT_INT64 tensor_shape {} int64_val: ", value, " }")));
  };
  Open(number("from", 5) + number("to", 7) + number("by", 1) +
       GraphNode("range", "RangeDataset", {"from", "to", "by"}, types) +
       GraphNode("iterator", "IteratorV2", {},
                 types + Attr("shared_name", "s: 'i'") + Attr("container", "s: ''")) +
       GraphNode("make", "MakeIterator", {"range", "iterator"}) +
       GraphNode("next", "IteratorGetNextAsOptional", {"iterator"}, types) +
       GraphNode("has", "OptionalHasValue", {"next"}) +
       GraphNode("value", "OptionalGetValue", {"next"}, types));
  ASSERT_TRUE(session_->RunTargets({graph_.FindOperation("make")}).ok());
  const StatusOr<Tensor> first = Run("value");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->scalar<int64_t>(), 5);
  EXPECT_TRUE(Bool("has"));
  EXPECT_FALSE(Bool("has"));
  EXPECT_THAT(Error("value"), HasSubstr("does not have a value"));
}

}  // namespace
}  // namespace millrace
