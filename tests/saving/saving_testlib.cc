// SPDX-License-Identifier: Apache-2.0
#include "tests/saving/saving_testlib.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/strings.h"

namespace millrace::testing {

namespace fs = std::filesystem;

std::string GoldenPath(const std::string& path) { return StrCat("tests/goldens/", path); }

Json LoadJson(const std::string& path) {
  const std::string text = FileText(GoldenPath(path));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::exit(1);
  }
  return json;
}

std::string EmptyFolder(const std::string& name) {
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  const fs::path folder =
      fs::path(::testing::TempDir()) / test->test_suite_name() / test->name() / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder.string();
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> FilesAsWrittenFirst(const std::string& folder) {
  std::vector<std::string> names = FilesIn(folder);
  for (std::string& name : names) {
    const std::string again = ".data-00000-of-00002";
    if (name.ends_with(again)) name.back() = '1';
  }
  return names;
}

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

Variable FloatVariable(const Scope& scope, const std::string& name, std::vector<float> values,
                       bool use_resource) {
  const int64_t size = static_cast<int64_t>(values.size());
  return MakeVariable(
      scope, name,
      Constant(scope.WithOpName(name + "_init"),
               Tensor::FromValues<float>(std::span<const float>(values), Shape({size}))),
      {.use_resource = use_resource});
}

std::vector<float> FloatsOf(Session& session, const Variable& variable) {
  const StatusOr<Tensor> value = session.Eval(variable.read);
  if (!value.ok()) {
    ADD_FAILURE() << value.status();
    return {};
  }
  return {value->flat<float>().begin(), value->flat<float>().end()};
}

Status SetFloats(Graph& graph, Session& session, const Variable& variable,
                 std::vector<float> values) {
  const int64_t size = static_cast<int64_t>(values.size());
  const Operation assign =
      Assign(graph.root(), variable,
             Tensor::FromValues<float>(std::span<const float>(values), Shape({size})));
  return session.RunTargets({assign});
}

namespace {

std::vector<double> NumbersOf(const Tensor& t) {
  std::vector<double> values;
  const auto add = [&]<typename T>(T) {
    for (const T& v : t.flat<T>()) values.push_back(static_cast<double>(v));
  };
  switch (t.dtype()) {
    case kFloat:
      add(float{});
      break;
    case kDouble:
      add(double{});
      break;
    case kInt32:
      add(int32_t{});
      break;
    case kInt64:
      add(int64_t{});
      break;
    case kBool:
      add(bool{});
      break;
    case kHalf:
      for (const Half& v : t.flat<Half>()) values.push_back(static_cast<float>(v));
      break;
    default:
      ADD_FAILURE() << "no numbers of " << DataTypeName(t.dtype());
  }
  return values;
}

}  // namespace

std::string DifferenceFrom(const Tensor& got, const Json& want) {
  Shape shape;
  for (const auto& d : want["shape"]) shape.AddDim(d.get<int64_t>());
  if (!(got.shape() == shape)) {
    return StrCat("shape ", got.shape().DebugString(), " instead of ", shape.DebugString());
  }
  const Json& data = want["data"];
  if (got.dtype() == kString) {
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (got.flat<std::string>()[i] != data[i].get<std::string>()) {
        return StrCat("element ", i, ": ", got.flat<std::string>()[i]);
      }
    }
    return "";
  }
  const std::vector<double> values = NumbersOf(got);
  if (values.size() != data.size()) return StrCat(values.size(), " elements");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double w = data[i].is_boolean() ? (data[i].get<bool>() ? 1 : 0) : data[i].get<double>();
    if (static_cast<float>(values[i]) != static_cast<float>(w)) {
      return StrCat("element ", i, ": ", values[i], " instead of ", w);
    }
  }
  return "";
}

}  // namespace millrace::testing
