// SPDX-License-Identifier: Apache-2.0
// Requests over HTTP against a server in this process.
#include "serving/rest_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "observe/visitor_testlib.h"
#include "serving/json_tensors.h"
#include "serving/model_server.h"
#include "tests/saved_models/recorded.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kFolder[] = "tests/saved_models/testdata/";

class RestServiceTest : public ::testing::Test {
 protected:
  void Serve(const std::string& name, ModelServerOptions options = {}) {
    server_ = nullptr;
    auto model = ServedModel::Load({.directory = kFolder + name});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    options.grpc_port = options.http_port = 0;
    server_ = std::make_unique<ModelServer>(model_.get(), options);
    const Status started = server_->Start();
    ASSERT_TRUE(started.ok()) << started;
    const auto calls = testing::ReadRecorded(kFolder + name);
    ASSERT_TRUE(calls.ok()) << calls.status();
    calls_ = *calls;
  }

  testing::Answer Post(const std::string& target, const std::string& body,
                       const std::string& headers = "Host: localhost\r\n") {
    testing::Visitor visitor(server_->http_port());
    EXPECT_TRUE(visitor.Send(StrCat("POST ", target, " HTTP/1.1\r\n", headers,
                                    "Content-Length: ", body.size(), "\r\n\r\n", body)));
    return testing::ParseAnswer(visitor.ReadAll());
  }

  static Json ToJson(const std::map<std::string, Tensor>& tensors) {
    StatusOr<Json> json = TensorsToJson(tensors);
    EXPECT_TRUE(json.ok()) << json.status();
    return *std::move(json);
  }

  // Equal but for the last digits of floats.
  static void ExpectNear(const Json& got, const Json& wanted) {
    if (wanted.is_number_float()) {
      ASSERT_TRUE(got.is_number()) << got;
      EXPECT_NEAR(got.get<double>(), wanted.get<double>(), 1e-5);
      return;
    }
    if (!wanted.is_structured()) {
      EXPECT_EQ(got, wanted);
      return;
    }
    ASSERT_EQ(got.type(), wanted.type());
    ASSERT_EQ(got.size(), wanted.size());
    for (const auto& [key, value] : wanted.items()) {
      ExpectNear(wanted.is_array() ? got.at(std::stoul(key)) : got.at(key), value);
    }
  }

  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<ModelServer> server_;
  std::vector<testing::RecordedCall> calls_;
};

TEST_F(RestServiceTest, ColumnsAndRowsGiveWhatTensorFlowComputed) {
  ASSERT_NO_FATAL_FAILURE(Serve("keras_mlp"));
  const Json inputs = ToJson(calls_[0].inputs), outputs = ToJson(calls_[0].outputs);
  ASSERT_EQ(inputs.size(), 1u);
  ASSERT_EQ(outputs.size(), 1u);
  const Json& x = inputs.begin().value();
  const Json& y = outputs.begin().value();
  Json rows = Json::array();
  for (const Json& row : x) rows.push_back({{inputs.begin().key(), row}});
  const Json requests[] = {
      {{"inputs", inputs}}, {{"inputs", x}}, {{"instances", x}}, {{"instances", rows}}};
  for (const Json& request : requests) {
    const testing::Answer answer = Post("/v1/models/keras_mlp:predict", request.dump());
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json json = Json::parse(answer.body);
    ExpectNear(json, {{request.contains("inputs") ? "outputs" : "predictions", y}});
  }
}

TEST_F(RestServiceTest, SeveralInputsAndOutputsHaveNames) {
  ASSERT_NO_FATAL_FAILURE(Serve("keras_two_inputs"));
  const Json inputs = ToJson(calls_[0].inputs), outputs = ToJson(calls_[0].outputs);
  ASSERT_GT(inputs.size(), 1u);
  testing::Answer answer =
      Post("/v1/models/keras_two_inputs/versions/1:predict", Json{{"inputs", inputs}}.dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  ExpectNear(Json::parse(answer.body)["outputs"], outputs);

  Json rows = Json::array();
  for (std::size_t i = 0; i < inputs.begin()->size(); ++i) {
    Json row;
    for (const auto& [name, column] : inputs.items()) row[name] = column[i];
    rows.push_back(row);
  }
  answer = Post("/v1/models/keras_two_inputs:predict", Json{{"instances", rows}}.dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json predictions = Json::parse(answer.body)["predictions"];
  ASSERT_EQ(predictions.size(), rows.size());
  for (const auto& [name, column] : outputs.items()) {
    for (std::size_t i = 0; i < rows.size(); ++i) ExpectNear(predictions[i][name], column[i]);
  }
  rows.back().erase(rows.back().begin());
  answer = Post("/v1/models/keras_two_inputs:predict", Json{{"instances", rows}}.dump());
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr(StrCat("row ", rows.size() - 1)));
}

TEST_F(RestServiceTest, StatusAndSignaturesAreTold) {
  ASSERT_NO_FATAL_FAILURE(Serve("keras_mlp"));
  const auto get = [&](const char* target) {
    return testing::Get(server_->http_port(), target, "Host: localhost\r\n");
  };
  testing::Answer answer = get("/v1/models/keras_mlp");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(Json::parse(answer.body)["model_version_status"][0]["state"], "AVAILABLE");
  answer = get("/v1/models/keras_mlp/metadata");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = Json::parse(answer.body);
  EXPECT_EQ(json["model_spec"]["name"], "keras_mlp");
  const Json& signature = json["metadata"]["signature_def"]["signature_def"][calls_[0].signature];
  const Json& input = signature["inputs"][calls_[0].inputs.begin()->first];
  EXPECT_EQ(input["dtype"], "DT_FLOAT");
  EXPECT_EQ(input["tensor_shape"]["dim"][0]["size"], "-1");
  EXPECT_EQ(get("/v1/models/keras_mlp/versions/1").status, 200);
  EXPECT_EQ(get("/v1/models/keras_mlp/versions/2").status, 404);
  EXPECT_EQ(get("/v1/models/other").status, 404);
  EXPECT_EQ(get("/v1/models/").status, 404);
  EXPECT_EQ(get("/").status, 404);
  EXPECT_EQ(get("/v1/models/keras_mlp:predict").status, 400);
}

TEST_F(RestServiceTest, MistakesAreTold) {
  ASSERT_NO_FATAL_FAILURE(Serve("keras_mlp"));
  const std::string name = calls_[0].inputs.begin()->first;
  const std::pair<std::string, const char*> cases[] = {
      {"", "no JSON"},
      {"{", "no JSON"},
      {"[1]", "object"},
      {"{}", "instances"},
      {R"({"instances": [[1]], "inputs": [[1]]})", "either"},
      {R"({"instances": []})", "at least one row"},
      {R"({"instances": {"a": 1}})", "list"},
      {R"({"signature_name": 3, "instances": [[1]]})", "signature_name"},
      {R"({"signature_name": "nope", "instances": [[1]]})", "nope"},
      {R"({"inputs": {"nope": [[1]]}})", "no value of type"},
      {R"({"instances": [["text"]]})", "no value of type"},
      {R"({"instances": [[1e39, 2, 3, 4]]})", "1e+39 is no value of type float"},
      {R"({"instances": [[1, 2], [3]]})", "length"},
      {R"({"instances": [[1, 2, 3]]})", "float[?,4]"},
      {StrCat(R"({"inputs": {")", name, R"(": [[1]], "more": [[1]]}})"), "more"},
      {StrCat(R"({"instances": )", std::string(100'000, '['), "}"), "no JSON"},
      {StrCat(R"({"instances": )", std::string(1000, '['), std::string(1000, ']'), "}"), "deep"},
  };
  for (const auto& [body, text] : cases) {
    const testing::Answer answer = Post("/v1/models/keras_mlp:predict", body);
    EXPECT_GE(answer.status, 400) << body.substr(0, 80);
    EXPECT_LT(answer.status, 500) << body.substr(0, 80);
    EXPECT_THAT(Json::parse(answer.body)["error"].get<std::string>(), HasSubstr(text))
        << body.substr(0, 80);
  }
}

TEST_F(RestServiceTest, BodiesAreBoundedAndHaveALength) {
  ModelServerOptions options;
  options.max_http_body = 100;
  ASSERT_NO_FATAL_FAILURE(Serve("keras_mlp", options));
  EXPECT_EQ(Post("/v1/models/keras_mlp:predict", std::string(101, ' ')).status, 413);
  const auto ask = [&](const std::string& headers) {
    testing::Visitor visitor(server_->http_port());
    EXPECT_TRUE(visitor.Send(StrCat(
        "POST /v1/models/keras_mlp:predict HTTP/1.1\r\nHost: localhost\r\n", headers, "\r\n")));
    return testing::ParseAnswer(visitor.ReadAll()).status;
  };
  EXPECT_EQ(ask(""), 411);
  EXPECT_EQ(ask("Content-Length: 99999999999999999999999999\r\n"), 413);
  EXPECT_EQ(ask("Content-Length: -1\r\n"), 400);
  EXPECT_EQ(ask("Content-Length: 0\r\nContent-Length: 0\r\n"), 400);
  EXPECT_EQ(ask("Transfer-Encoding: chunked\r\n"), 501);
}

TEST_F(RestServiceTest, BodiesAreBoundedAlsoInAll) {
  ModelServerOptions options;
  options.max_http_body = 4000;
  ASSERT_NO_FATAL_FAILURE(Serve("keras_mlp", options));
  const std::string body = Json{{"inputs", ToJson(calls_[0].inputs)}}.dump();
  ASSERT_LT(body.size(), 4000u);
  std::vector<std::unique_ptr<testing::Visitor>> slow;
  for (int i = 0; i < 4; ++i) {
    slow.push_back(std::make_unique<testing::Visitor>(server_->http_port()));
    ASSERT_TRUE(
        slow.back()->Send("POST /v1/models/keras_mlp:predict HTTP/1.1\r\nHost: localhost\r\n"
                          "Content-Length: 4000\r\nExpect: 100-continue\r\n\r\n"));
  }
  // Those four are read before whoever comes after them.
  EXPECT_EQ(Post("/v1/models/keras_mlp:predict", body).status, 503);
  EXPECT_EQ(testing::Get(server_->http_port(), "/v1/models/keras_mlp").status, 200);
  slow.clear();
  int status = 503;
  for (int i = 0; i < 1200 && status == 503; ++i) {
    status = Post("/v1/models/keras_mlp:predict", body).status;
    if (status == 503) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(status, 200) << "the room was given back";
}

TEST_F(RestServiceTest, BodiesComeInPiecesOfAnySize) {
  ASSERT_NO_FATAL_FAILURE(Serve("keras_mlp"));
  const std::string body = Json{{"inputs", ToJson(calls_[0].inputs)}}.dump();
  testing::Visitor visitor(server_->http_port());
  const std::string all = StrCat(
      "POST /v1/models/keras_mlp:predict HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
      "Content-Length: ",
      body.size(), "\r\n\r\n", body);
  for (std::size_t i = 0; i < all.size(); i += 7) ASSERT_TRUE(visitor.Send(all.substr(i, 7)));
  const std::string answer = visitor.ReadAll();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")) << answer;
}

TEST_F(RestServiceTest, ManyAskAtOnce) {
  ASSERT_NO_FATAL_FAILURE(Serve("keras_mlp"));
  const std::string body = Json{{"inputs", ToJson(calls_[0].inputs)}}.dump();
  const Json wanted = {{"outputs", ToJson(calls_[0].outputs).begin().value()}};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 10; ++j) {
        const testing::Answer answer = Post("/v1/models/keras_mlp:predict", body);
        ASSERT_EQ(answer.status, 200) << answer.body;
        ExpectNear(Json::parse(answer.body), wanted);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(RestServiceTest, ATokenIsAskedForAndOtherSitesNamesAreRefused) {
  ASSERT_NO_FATAL_FAILURE(Serve("keras_mlp"));
  const std::string body = Json{{"inputs", ToJson(calls_[0].inputs)}}.dump();
  EXPECT_EQ(Post("/v1/models/keras_mlp:predict", body, "Host: evil.example\r\n").status, 403);

  const std::string file = ::testing::TempDir() + "/token";
  std::ofstream(file) << "correct-horse-battery\n";
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  ModelServerOptions options;
  options.credentials.token_file = file;
  ASSERT_NO_FATAL_FAILURE(Serve("keras_mlp", options));
  EXPECT_EQ(Post("/v1/models/keras_mlp:predict", body).status, 401);
  EXPECT_EQ(Post("/v1/models/keras_mlp:predict", body,
                 "Host: any\r\nAuthorization: Bearer correct-horse-battery\r\n")
                .status,
            200);
}

TEST_F(RestServiceTest, AnAddressThatOthersReachIsRefusedUnlessAskedFor) {
  ASSERT_NO_FATAL_FAILURE(Serve("keras_mlp"));
  ModelServer open(model_.get(), {.host = "0.0.0.0", .grpc_port = 0, .http_port = 0});
  EXPECT_EQ(open.Start().code(), StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace millrace
