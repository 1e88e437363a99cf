// SPDX-License-Identifier: Apache-2.0
// What tests of saving share: folders of their own, files by name, clocks that are told the time.
#ifndef TESTS_SAVING_SAVING_TESTLIB_H_
#define TESTS_SAVING_SAVING_TESTLIB_H_

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "millrace/checkpoint.h"
#include "millrace/core.h"
#include "millrace/saver.h"

namespace millrace::testing {

using Json = nlohmann::json;

// Below the folder of goldens; ends the test program if it cannot be read.
Json LoadJson(const std::string& path);
std::string GoldenPath(const std::string& path);

// An empty folder of the running test, named by what it is for.
std::string EmptyFolder(const std::string& name);
// The names in a folder, sorted.
std::vector<std::string> FilesIn(const std::string& folder);
// The same with data files as they are called when a checkpoint is written for the first time: one
// that is written again takes another number of files, so that the old one is whole meanwhile.
std::vector<std::string> FilesAsWrittenFirst(const std::string& folder);
std::string FileText(const std::string& path);
void WriteText(const std::string& path, const std::string& text);

// A variable of a test's graph, with a value that says which one it is.
Variable FloatVariable(const Scope& scope, const std::string& name, std::vector<float> values,
                       bool use_resource = false);
std::vector<float> FloatsOf(Session& session, const Variable& variable);
Status SetFloats(Graph& graph, Session& session, const Variable& variable,
                 std::vector<float> values);

// A tensor written as {dtype, shape, data}, strings as text, half as float32.
std::string DifferenceFrom(const Tensor& got, const Json& want);

}  // namespace millrace::testing

#endif  // TESTS_SAVING_SAVING_TESTLIB_H_
