// SPDX-License-Identifier: Apache-2.0
// Small graphs that once ended a process, or read its memory: each is refused now, or gives what
// is right, within memory that a client could have had anyway.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "device/resource_manager.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "millrace/ref_ptr.h"
#include "ops/all_ops.h"
#include "tests/kernel_conformance/graph_interpreter.h"

namespace millrace::testing {
namespace {

constexpr int64_t kHuge = int64_t{1} << 40;
constexpr int64_t kWraps = 922337203685477581;  // by 20 it is 4, modulo 2^64

Tensor Empty(DataType dtype, const Shape& shape) {
  EXPECT_EQ(shape.num_elements(), 0);
  return Tensor(dtype, shape);
}
template <typename T>
Tensor Vector(std::initializer_list<T> values) {
  return Tensor::FromValues<T>(values);
}

class NamedCasesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ops_ = new OpRegistry;
    ASSERT_TRUE(RegisterAllOps(*ops_).ok());
    kernels_ = new KernelRegistry;
    RegisterAllKernels(*kernels_);
  }

  // "Op;attr=value;..." with the operands `fed`: the output of a node of that op, or its error.
  StatusOr<std::vector<Tensor>> Run(const std::string& op, const std::string& attrs,
                                    const std::vector<Tensor>& fed) {
    std::string text = StrCat("node { name: 'n' op: '", op, "' ", attrs);
    std::map<std::string, Tensor> feeds;
    for (std::size_t i = 0; i < fed.size(); ++i) {
      StrAppend(&text, " input: 'in", i, "'");
      feeds[StrCat("in", i, ":0")] = fed[i];
    }
    text += " }";
    for (std::size_t i = 0; i < fed.size(); ++i) {
      StrAppend(&text, " node { name: 'in", i, "' op: 'Placeholder' ",
                Type("dtype", fed[i].dtype()), " }");
    }
    return RunText(text, feeds, {"n:0"}, {});
  }
  StatusOr<std::vector<Tensor>> RunText(const std::string& text,
                                        const std::map<std::string, Tensor>& feeds,
                                        const std::vector<std::string>& fetches,
                                        const std::vector<std::string>& targets) {
    pb::GraphDef graph;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &graph)) << text;
    auto interpreter = GraphInterpreter::Create(graph, *ops_, *kernels_, device_.get());
    if (!interpreter.ok()) return interpreter.status();
    return (*interpreter)->Run(feeds, fetches, targets);
  }

  static std::string Type(const std::string& name, DataType type) {
    return StrCat("attr { key: '", name,
                  "' value { type: ", pb::DataType_Name(static_cast<pb::DataType>(type)), " } }");
  }
  static std::string Attr(const std::string& name, const std::string& value) {
    return StrCat("attr { key: '", name, "' value { ", value, " } }");
  }
  static std::string Ints(const std::string& name, const std::vector<int64_t>& values) {
    return Attr(name, StrCat("list { i: [", StrJoin(values, ", "), "] }"));
  }

  void ExpectRefused(const std::string& op, const std::string& attrs,
                     const std::vector<Tensor>& fed) {
    const Status status = Run(op, attrs, fed).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status) || errors::IsResourceExhausted(status))
        << op << ": " << status;
  }

  static inline OpRegistry* ops_ = nullptr;
  static inline KernelRegistry* kernels_ = nullptr;
  ResourceManager resources_;
  const std::unique_ptr<Device> device_ =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, nullptr, &resources_);
};

TEST_F(NamedCasesTest, ProductsOfEmptyMatricesThatWrap) {
  const int64_t big = int64_t{1} << 32;
  const std::string t = Type("T", kFloat);
  ExpectRefused("MatMul", t, {Empty(kFloat, {big, 0}), Empty(kFloat, {0, big})});
  ExpectRefused("MatMul", t, {Empty(kFloat, {kWraps, 0}), Empty(kFloat, {0, 20})});
  ExpectRefused("BatchMatMulV2", t, {Empty(kFloat, {2, big, 0}), Empty(kFloat, {2, 0, big / 2})});
  ExpectRefused("Einsum", t + Attr("N", "i: 2") + Attr("equation", "s: 'ij,jk->ik'"),
                {Empty(kFloat, {kWraps, 0}), Empty(kFloat, {0, 20})});
  ExpectRefused("_FusedMatMul",
                t + Attr("num_args", "i: 1") + Attr("fused_ops", "list { s: 'BiasAdd' }"),
                {Empty(kFloat, {kWraps, 0}), Empty(kFloat, {0, 20}), Tensor(kFloat, {20})});
}

TEST_F(NamedCasesTest, AxesThatAreAddedUp) {
  const Tensor wide = Empty(kFloat, {0, int64_t{1} << 62});
  const std::string four = Attr("N", "i: 4") + Type("T", kFloat);
  ExpectRefused("Pack", four + Attr("axis", "i: 1"), {wide, wide, wide, wide});
  ExpectRefused("ConcatV2", four + Type("Tidx", kInt32),
                {wide, wide, wide, wide, Tensor::Scalar<int32_t>(1)});
}

TEST_F(NamedCasesTest, ListsOfElementsThatNoTensorHas) {
  const std::string reserve =
      "node { name: 'list' op: 'TensorListReserve' input: 'shape' input: 'count' " +
      Type("element_dtype", kInt8) + Type("shape_type", kInt64) +
      " } node { name: 'shape' op: 'Placeholder' " + Type("dtype", kInt64) +
      " } node { name: 'count' op: 'Placeholder' " + Type("dtype", kInt32) + " }";
  const Tensor four = Tensor::Scalar<int32_t>(4);
  const std::string sizes =
      " node { name: 'sizes' op: 'Placeholder' " + Type("dtype", kInt64) + " }";
  const Status joined =
      RunText(reserve + sizes +
                  " node { name: 'n' op: 'TensorListConcatV2' input: 'list' input: 'shape' "
                  "input: 'sizes' " +
                  Type("element_dtype", kInt8) + Type("shape_type", kInt64) + " }",
              {{"shape:0", Vector<int64_t>({-1, 1})},
               {"count:0", four},
               {"sizes:0", Vector<int64_t>({kHuge << 22, kHuge << 22, kHuge << 22, kHuge << 22})}},
              {"n:0"}, {})
          .status();
  EXPECT_TRUE(errors::IsInvalidArgument(joined)) << joined;
  // It read 72,000 bytes of whoever's memory.
  const Status read =
      RunText(
          reserve + " node { name: 'at' op: 'Const' " + Type("dtype", kInt32) +
              Attr("value", "tensor { dtype: DT_INT32 tensor_shape {} int_val: 0 }") +
              " } node { name: 'n' op: 'TensorListGetItem' input: 'list' input: 'at' "
              "input: 'count' " +
              Type("element_dtype", kInt8) + " }",
          {{"shape:0", Vector<int64_t>({kWraps, 20})}, {"count:0", Tensor::Scalar<int32_t>(-1)}},
          {"n:0"}, {})
          .status();
  EXPECT_FALSE(read.ok());
}

TEST_F(NamedCasesTest, TablesOfValuesThatNoTensorHas) {
  const auto found = RunText(
      "node { name: 't' op: 'MutableHashTableOfTensorsV2' " + Type("key_dtype", kInt64) +
          Type("value_dtype", kFloat) +
          Attr("value_shape", StrCat("shape { dim { size: ", int64_t{1} << 62, " } }")) +
          " } node { name: 'keys' op: 'Placeholder' " + Type("dtype", kInt64) +
          " } node { name: 'none' op: 'Placeholder' " + Type("dtype", kFloat) +
          " } node { name: 'n' op: 'LookupTableFindV2' input: 't' input: 'keys' input: 'none' " +
          Type("Tin", kInt64) + Type("Tout", kFloat) + " }",
      {{"keys:0", Vector<int64_t>({1, 2, 3, 4})}, {"none:0", Empty(kFloat, {0})}}, {"n:0"}, {});
  EXPECT_TRUE(errors::IsInvalidArgument(found.status())) << found.status();
}

TEST_F(NamedCasesTest, WindowsOfAbsurdSizesAndPaddings) {
  const int64_t big = int64_t{1} << 31;
  const Tensor image(kFloat, {1, 4, 4, 4}), filter(kFloat, {2, 2, 4, 4});
  const std::string t = Type("T", kFloat), valid = Attr("padding", "s: 'VALID'"),
                    ones = Ints("strides", {1, 1, 1, 1}), ksize = Ints("ksize", {1, 2, 2, 1});
  ExpectRefused("ExtractImagePatches",
                t + Attr("padding", "s: 'SAME'") + ones + Ints("rates", {1, 1, 1, 1}) +
                    Ints("ksizes", {1, big, big, 1}),
                {image});
  ExpectRefused("ExtractImagePatches",
                t + Attr("padding", "s: 'SAME'") + ones + Ints("rates", {1, 1, 1, 1}) +
                    Ints("ksizes", {1, big - 1, big - 1, 1}),
                {image});
  const std::string padded = t + Attr("padding", "s: 'EXPLICIT'") + ones;
  for (const std::vector<int64_t>& paddings :
       std::vector<std::vector<int64_t>>{{0, 0, big, big, big, big, 0, 0},
                                         {0, 0, big - 1, big - 1, big - 1, big - 1, 0, 0},
                                         {0, 0, -1, 0, 0, 0, 0, 0},
                                         {0, 0, 2 * big + 1, -2 * big, 0, 0, 0, 0},
                                         {0, 0, 0, 0, 0, 0, 1, 0}}) {
    ExpectRefused("Conv2D", padded + Ints("explicit_paddings", paddings), {image, filter});
    ExpectRefused("MaxPool", padded + ksize + Ints("explicit_paddings", paddings), {image});
  }
  for (const int64_t wide : {big, INT64_MAX, int64_t{1} << 62, int64_t{0}, int64_t{-1}}) {
    ExpectRefused("Conv2D", t + valid + Ints("strides", {1, wide, 1, 1}), {image, filter});
    ExpectRefused("Conv2D", t + valid + ones + Ints("dilations", {1, 1, wide, 1}), {image, filter});
    ExpectRefused("MaxPool", t + valid + ones + Ints("ksize", {1, wide, 1, 1}), {image});
  }
  // Padding between pixels of a depth window would read beyond them.
  EXPECT_FALSE(Run("MaxPool",
                   padded + Ints("ksize", {1, 1, 1, 2}) +
                       Ints("explicit_paddings", {0, 0, 1, 1, 1, 1, 0, 0}),
                   {image})
                   .ok());
  ExpectRefused("DepthToSpace", t + Attr("block_size", StrCat("i: ", 2 * big)), {image});
}

TEST_F(NamedCasesTest, TheLowestIntegerByMinusOneWraps) {
  const auto divide = [&](const std::string& op, DataType type, const Tensor& by,
                          const Tensor& first) {
    return RunText("node { name: 'v' op: 'VarHandleOp' " + Type("dtype", type) +
                       Attr("shape", "shape { dim { size: 1 } }") +
                       Attr("shared_name", "s: '" + op + DataTypeName(type).data() + "'") +
                       " } node { name: 'first' op: 'Placeholder' " + Type("dtype", type) +
                       " } node { name: 'at' op: 'Placeholder' " + Type("dtype", kInt32) +
                       " } node { name: 'by' op: 'Placeholder' " + Type("dtype", type) +
                       " } node { name: 'init' op: 'AssignVariableOp' input: 'v' input: 'first' " +
                       Type("dtype", type) + " } node { name: 'change' op: '" + op +
                       "' input: 'v' input: 'at' input: 'by' input: '^init' " +
                       Type("dtype", type) + Type("Tindices", kInt32) +
                       " } node { name: 'n' op: 'ReadVariableOp' input: 'v' input: '^change' " +
                       Type("dtype", type) + " }",
                   {{"first:0", first}, {"at:0", Vector<int32_t>({0})}, {"by:0", by}}, {"n:0"}, {});
  };
  const auto narrow =
      divide("ResourceScatterDiv", kInt32, Vector<int32_t>({-1}), Vector<int32_t>({INT32_MIN}));
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ((*narrow)[0].data<int32_t>()[0], INT32_MIN);
  const auto wide =
      divide("ResourceScatterDiv", kInt64, Vector<int64_t>({-1}), Vector<int64_t>({INT64_MIN}));
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ((*wide)[0].data<int64_t>()[0], INT64_MIN);
  const auto product =
      divide("ResourceScatterMul", kInt32, Vector<int32_t>({INT32_MAX}), Vector<int32_t>({3}));
  ASSERT_TRUE(product.ok()) << product.status();
  EXPECT_EQ((*product)[0].data<int32_t>()[0], INT32_MAX - 2);
}

// Nothing is taken for axes that hold nothing.
TEST_F(NamedCasesTest, EmptyTensorsOfEnormousAxes) {
  const auto resized = Run("ResizeBilinear", Type("T", kFloat),
                           {Empty(kFloat, {0, 1, 1, 1}), Vector<int32_t>({INT32_MAX, 1})});
  ASSERT_TRUE(resized.ok()) << resized.status();
  EXPECT_EQ((*resized)[0].shape(), Shape({0, INT32_MAX, 1, 1}));
  const auto drawn = Run("Multinomial", Type("T", kFloat) + Type("output_dtype", kInt64),
                         {Empty(kFloat, {0, kHuge}), Tensor::Scalar<int32_t>(2)});
  ASSERT_TRUE(drawn.ok()) << drawn.status();
  EXPECT_EQ((*drawn)[0].shape(), Shape({0, 2}));
  const auto summed = Run("SparseSegmentSumGrad", Type("T", kFloat) + Type("Tidx", kInt32),
                          {Empty(kFloat, {kHuge, 0}), Empty(kInt32, {0}), Empty(kInt32, {0}),
                           Tensor::Scalar<int32_t>(3)});
  ASSERT_TRUE(summed.ok()) << summed.status();
  EXPECT_EQ((*summed)[0].shape(), Shape({3, 0}));
  ExpectRefused("SparseFillEmptyRows", Type("T", kFloat),
                {Empty(kInt64, {0, 2}), Empty(kFloat, {0}), Vector<int64_t>({kHuge, 1}),
                 Tensor::Scalar<float>(0)});
  ExpectRefused("UniqueV2", Type("T", kFloat) + Type("Taxis", kInt64) + Type("out_idx", kInt32),
                {Empty(kFloat, {kHuge, 0}), Vector<int64_t>({0})});
  ExpectRefused("TensorListFromTensor", Type("element_dtype", kFloat) + Type("shape_type", kInt32),
                {Empty(kFloat, {kHuge, 0}), Tensor::Scalar<int32_t>(-1)});
}

// Each walked through as many lines, and no deadline could end it.
TEST_F(NamedCasesTest, LinesThatHoldNothing) {
  const Shape lines({0, INT32_MAX, 1, 65536});
  for (const char* op : {"Cumsum", "Cumprod", "CumulativeLogsumexp"}) {
    const auto scanned = Run(op, Type("T", kFloat) + Type("Tidx", kInt64),
                             {Empty(kFloat, lines), Tensor::Scalar<int64_t>(0)});
    ASSERT_TRUE(scanned.ok()) << scanned.status();
    EXPECT_EQ((*scanned)[0].shape(), lines);
  }
  const std::string format = Attr("T", "list { type: DT_FLOAT }") + Attr("template", "s: '%s'") +
                             Attr("placeholder", "s: '%s'");
  ExpectRefused("StringFormat", format + Attr("summarize", "i: -1"), {Empty(kFloat, {kHuge, 0})});
  const auto few =
      Run("StringFormat", format + Attr("summarize", "i: 1"), {Empty(kFloat, {kHuge, 0})});
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_EQ((*few)[0].scalar<std::string>(), "[[]\n ...\n []]");
}

TEST_F(NamedCasesTest, ABatchOfElementsThatHoldNothing) {
  const Status status =
      RunText("node { name: 'q' op: 'FIFOQueueV2' " +
                  Attr("component_types", "list { type: DT_FLOAT }") +
                  " } node { name: 'x' op: 'Placeholder' " + Type("dtype", kFloat) +
                  " } node { name: 'n' op: 'QueueEnqueueManyV2' input: 'q' input: 'x' " +
                  Attr("Tcomponents", "list { type: DT_FLOAT }") + " }",
              {{"x:0", Empty(kFloat, {kHuge, 0})}}, {}, {"n"})
          .status();
  EXPECT_TRUE(errors::IsResourceExhausted(status)) << status;
}

// Each wrote elements of one width into memory for another.
TEST_F(NamedCasesTest, PartsOfComplexNumbersAreAsWideAsTheyAre) {
  const Tensor wide = Tensor::FromValues<Complex128>({{1, 2}, {3, 4}, {5, 6}});
  for (const char* op : {"Real", "Imag", "ComplexAbs", "Angle"}) {
    EXPECT_FALSE(Run(op, Type("T", kComplex128) + Type("Tout", kFloat), {wide}).ok()) << op;
    EXPECT_TRUE(Run(op, Type("T", kComplex128) + Type("Tout", kDouble), {wide}).ok()) << op;
  }
  const Tensor part = Vector<double>({1, 2, 3});
  EXPECT_FALSE(Run("Complex", Type("T", kDouble) + Type("Tout", kComplex64), {part, part}).ok());
  EXPECT_TRUE(Run("Complex", Type("T", kDouble) + Type("Tout", kComplex128), {part, part}).ok());
}

// Bytes that the process has of its allocator, large pieces included.
std::size_t BytesTaken() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// A list took 72 bytes for each element that was merely announced: a gigabyte for a small message.
TEST_F(NamedCasesTest, AListTakesNoMemoryForElementsThatAreNotSet) {
  const int32_t most = 1 << 24;
  const std::string element = Type("element_dtype", kFloat);
  const std::size_t before = BytesTaken();
  const auto reserved = Run("TensorListReserve", element + Type("shape_type", kInt32),
                            {Tensor(kInt32, {0}), Tensor::Scalar<int32_t>(most)});
  ASSERT_TRUE(reserved.ok()) << reserved.status();
  const auto set =
      Run("TensorListSetItem", element,
          {(*reserved)[0], Tensor::Scalar<int32_t>(most - 1), Tensor::Scalar<float>(5)});
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_LT(BytesTaken(), before + (1 << 20));
  const Tensor no_shape(kInt32, {0});
  for (const auto& [index, value] : {std::pair{most - 1, 5.0f}, {most - 2, 0.0f}, {0, 0.0f}}) {
    const auto got =
        Run("TensorListGetItem", element, {(*set)[0], Tensor::Scalar<int32_t>(index), no_shape});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ((*got)[0].scalar<float>(), value) << index;
  }
}

// In whatever order elements are set, near the beginning or far from it.
TEST_F(NamedCasesTest, AListKeepsElementsWhereverTheyAreSet) {
  const int32_t n = 10'000;
  const std::string element = Type("element_dtype", kFloat);
  const Tensor no_shape(kInt32, {0});
  const auto reserved = Run("TensorListReserve", element + Type("shape_type", kInt32),
                            {no_shape, Tensor::Scalar<int32_t>(n)});
  ASSERT_TRUE(reserved.ok()) << reserved.status();
  Tensor list = (*reserved)[0];
  const std::vector<int32_t> order = {9'999, 5'000, 3'000, 0, 1'000, 3'001, 2'500, 9'000, 7'000};
  std::vector<float> want(n);
  for (std::size_t i = 0; i < order.size(); ++i) {
    want[order[i]] = static_cast<float>(i + 1);
    const auto set = Run("TensorListSetItem", element,
                         {list, Tensor::Scalar<int32_t>(order[i]), Tensor::Scalar(want[order[i]])});
    ASSERT_TRUE(set.ok()) << set.status();
    list = (*set)[0];
  }
  const auto stacked = Run("TensorListStack", element, {list, no_shape});
  ASSERT_TRUE(stacked.ok()) << stacked.status();
  const auto values = (*stacked)[0].flat<float>();
  EXPECT_EQ(std::vector<float>(values.begin(), values.end()), want);
  // Shorter, and longer again: what was cut off is gone.
  for (const int32_t size : {4'000, n}) {
    const auto resized = Run("TensorListResize", "", {list, Tensor::Scalar<int32_t>(size)});
    ASSERT_TRUE(resized.ok()) << resized.status();
    list = (*resized)[0];
  }
  std::fill(want.begin() + 4'000, want.end(), 0.0f);
  const auto again = Run("TensorListStack", element, {list, no_shape});
  ASSERT_TRUE(again.ok()) << again.status();
  const auto rest = (*again)[0].flat<float>();
  EXPECT_EQ(std::vector<float>(rest.begin(), rest.end()), want);
}

TEST_F(NamedCasesTest, AParameterThatDoesNotFit) {
  ExpectRefused("FakeParam",
                Type("dtype", kFloat) +
                    Attr("shape", StrCat("shape { dim { size: ", int64_t{1} << 45, " } }")),
                {});
  ExpectRefused("FakeParam",
                Type("dtype", kFloat) +
                    Attr("shape", StrCat("shape { dim { size: ", kWraps, " } dim { size: 20 } }")),
                {});
}

// Elements of a variant tensor.
struct Object : RefCounted {};
using Objects = std::vector<RefPtr<RefCounted>>;

Tensor TensorOf(const Objects& objects) {
  Tensor tensor(kVariant, {static_cast<int64_t>(objects.size())});
  std::copy(objects.begin(), objects.end(), static_cast<RefPtr<RefCounted>*>(tensor.raw_data()));
  return tensor;
}
Objects ObjectsOf(const Tensor& tensor) {
  const auto* const first = static_cast<const RefPtr<RefCounted>*>(tensor.raw_data());
  return Objects(first, first + tensor.num_elements());
}

// Copied as bytes they were released twice.
TEST_F(NamedCasesTest, ObjectsThatGoThroughQueuesAreCounted) {
  Objects objects;
  for (int i = 0; i < 3; ++i) objects.push_back(MakeRef<Object>());
  {
    const Tensor fed = TensorOf(objects);
    const auto out =
        RunText("node { name: 'q' op: 'FIFOQueueV2' " +
                    Attr("component_types", "list { type: DT_VARIANT }") +
                    Attr("shapes", "list { shape { } }") +
                    " } node { name: 'x' op: 'Placeholder' " + Type("dtype", kVariant) +
                    " } node { name: 'in' op: 'QueueEnqueueManyV2' input: 'q' input: 'x' " +
                    Attr("Tcomponents", "list { type: DT_VARIANT }") +
                    " } node { name: 'count' op: 'Placeholder' " + Type("dtype", kInt32) +
                    " } node { name: 'n' op: 'QueueDequeueManyV2' input: 'q' input: 'count' "
                    "input: '^in' " +
                    Attr("component_types", "list { type: DT_VARIANT }") + " }",
                {{"x:0", fed}, {"count:0", Tensor::Scalar<int32_t>(3)}}, {"n:0"}, {});
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ(ObjectsOf((*out)[0]), objects);
    EXPECT_EQ(ObjectsOf(fed), objects);
  }
  for (const auto& object : objects) EXPECT_TRUE(object->RefCountIsOne());
}

// An update of rows changed nothing, and what others still held was released twice.
TEST_F(NamedCasesTest, ObjectsInVariablesAreCountedAndReplaced) {
  Objects objects;
  for (int i = 0; i < 3; ++i) objects.push_back(MakeRef<Object>());
  for (const std::string op : {"ResourceScatterUpdate", "ResourceScatterNdUpdate"}) {
    const bool nd = op == "ResourceScatterNdUpdate";
    const std::string type = Type("dtype", kVariant);
    const Tensor first = TensorOf({objects[0], objects[1]});
    const auto out = RunText(
        "node { name: 'v' op: 'VarHandleOp' " + type + Attr("shape", "shape { dim { size: 2 } }") +
            Attr("shared_name", "s: '" + op + "'") + " } node { name: 'first' op: 'Placeholder' " +
            type + " } node { name: 'at' op: 'Placeholder' " + Type("dtype", kInt32) +
            " } node { name: 'by' op: 'Placeholder' " + type +
            " } node { name: 'init' op: 'AssignVariableOp' input: 'v' input: 'first' " + type +
            " } node { name: 'before' op: 'ReadVariableOp' input: 'v' input: '^init' " + type +
            " } node { name: 'change' op: '" + op +
            "' input: 'v' input: 'at' input: 'by' input: '^before' " +
            Type(nd ? "T" : "dtype", kVariant) + Type("Tindices", kInt32) +
            " } node { name: 'n' op: 'ReadVariableOp' input: 'v' input: '^change' " + type + " }",
        {{"first:0", first},
         {"at:0", nd ? Tensor::FromValues<int32_t>({1}, {1, 1}) : Vector<int32_t>({1})},
         {"by:0", TensorOf({objects[2]})}},
        {"before:0", "n:0"}, {});
    ASSERT_TRUE(out.ok()) << op << ": " << out.status();
    EXPECT_EQ(ObjectsOf((*out)[0]), Objects({objects[0], objects[1]})) << op;
    EXPECT_EQ(ObjectsOf((*out)[1]), Objects({objects[0], objects[2]})) << op;
    EXPECT_EQ(ObjectsOf(first), Objects({objects[0], objects[1]})) << op;
  }
  resources_.Clear();
  for (const auto& object : objects) EXPECT_TRUE(object->RefCountIsOne());
}

// What is left of it would be 8 GiB.
TEST_F(NamedCasesTest, AReducedSparseTensorThatCannotBe) {
  const Tensor shape = Vector<int64_t>({int64_t{1} << 32, int64_t{1} << 31});
  for (const char* op : {"SparseReduceSum", "SparseReduceMax"}) {
    ExpectRefused(op, Type("T", kInt32),
                  {Tensor::FromValues<int64_t>({1, 2, 3, 4}, {2, 2}), Vector<int32_t>({1, 3}),
                   shape, Vector<int32_t>({0})});
  }
}

}  // namespace
}  // namespace millrace::testing
