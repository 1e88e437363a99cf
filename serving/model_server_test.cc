// SPDX-License-Identifier: Apache-2.0
// Clients' calls against a server in this process.
#include "serving/model_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/thread_pool.h"
#include "io/filesystem.h"
#include "proto/serving.pb.h"
#include "serving/predict_service.h"
#include "tensor/tensor_proto.h"
#include "tests/saved_models/recorded.h"
#include "transport/grpc/grpc_util.h"
#include "transport/grpc/rpc_channel.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::UnorderedElementsAre;

constexpr char kFolder[] = "tests/saved_models/testdata/";

class ModelServerTest : public ::testing::Test {
 protected:
  void Serve(const std::string& name) {
    auto model = ServedModel::Load({.directory = kFolder + name});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    server_ = std::make_unique<ModelServer>(model_.get(), ModelServerOptions{.grpc_port = 0});
    const Status started = server_->Start();
    ASSERT_TRUE(started.ok()) << started;
    channel_ = std::make_unique<RpcChannel>(StrCat("127.0.0.1:", server_->grpc_port()), "server",
                                            &client_pool_);
    const auto calls = testing::ReadRecorded(kFolder + name);
    ASSERT_TRUE(calls.ok()) << calls.status();
    calls_ = *calls;
  }

  Status Call(const char* method, const google::protobuf::MessageLite& request,
              google::protobuf::MessageLite* response) {
    Notification answered;
    Status result;
    channel_->Call(method, {DeadlineAfter(std::chrono::seconds(60)), nullptr},
                   ToByteBuffer(request), RpcChannel::IfDown::kWait,
                   [&](Status status, const grpc::ByteBuffer& bytes) {
                     result = status.ok() ? ReceivedBytes(bytes).Parse(response) : status;
                     answered.Notify();
                   });
    answered.Wait();  // the call has a deadline
    return result;
  }

  static pb::PredictRequest RequestOf(const testing::RecordedCall& call) {
    pb::PredictRequest request;
    request.mutable_model_spec()->set_signature_name(call.signature);
    for (const auto& [name, value] : call.inputs) {
      TensorToProto(value, &(*request.mutable_inputs())[name]);
    }
    return request;
  }

  static void ExpectAnswer(const pb::PredictResponse& response,
                           const std::map<std::string, Tensor>& wanted) {
    ASSERT_EQ(response.outputs().size(), wanted.size());
    for (const auto& [name, value] : wanted) {
      ASSERT_TRUE(response.outputs().contains(name)) << name;
      const auto got = TensorFromProto(response.outputs().at(name));
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_EQ(got->shape(), value.shape());
      ASSERT_EQ(got->dtype(), value.dtype());
      if (value.dtype() != kFloat) {
        EXPECT_TRUE(TensorsEqual(*got, value)) << name;
        continue;
      }
      for (int64_t i = 0; i < value.num_elements(); ++i) {
        EXPECT_NEAR(got->data<float>()[i], value.data<float>()[i], 1e-5) << name;
      }
    }
  }

  ThreadPool client_pool_{"client", 2};
  std::vector<testing::RecordedCall> calls_;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<ModelServer> server_;
  std::unique_ptr<RpcChannel> channel_;
};

TEST_F(ModelServerTest, PredictGivesWhatTensorFlowComputed) {
  for (const char* name : {"keras_mlp", "v2_module"}) {
    channel_.reset();
    server_.reset();
    ASSERT_NO_FATAL_FAILURE(Serve(name));
    for (const testing::RecordedCall& call : calls_) {
      pb::PredictResponse response;
      const Status status = Call(kPredictPath, RequestOf(call), &response);
      ASSERT_TRUE(status.ok()) << status;
      ExpectAnswer(response, call.outputs);
      EXPECT_EQ(response.model_spec().name(), name);
      EXPECT_EQ(response.model_spec().version().value(), 1);
      EXPECT_EQ(response.model_spec().signature_name(), call.signature);
    }
  }
}

TEST_F(ModelServerTest, ManyCallsAtOnceGetTheirOwnRows) {
  ASSERT_NO_FATAL_FAILURE(Serve("keras_mlp"));
  const testing::RecordedCall& all = calls_[0];
  const Tensor& x = all.inputs.at("x");
  std::vector<std::thread> threads;
  for (int64_t row = 0; row < x.dim(0); ++row) {
    threads.emplace_back([&, row] {
      testing::RecordedCall call = all;
      call.inputs["x"] = x.Slice(row, row + 1);
      for (auto& [name, value] : call.outputs) value = value.Slice(row, row + 1);
      for (int i = 0; i < 20; ++i) {
        pb::PredictResponse response;
        const Status status = Call(kPredictPath, RequestOf(call), &response);
        ASSERT_TRUE(status.ok()) << status;
        ExpectAnswer(response, call.outputs);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ModelServerTest, OutputsAreFiltered) {
  ASSERT_NO_FATAL_FAILURE(Serve("keras_two_inputs"));
  pb::PredictRequest request = RequestOf(calls_[0]);
  request.add_output_filter("output_1");
  pb::PredictResponse response;
  ASSERT_TRUE(Call(kPredictPath, request, &response).ok());
  EXPECT_THAT(response.outputs(), ElementsAre(Key("output_1")));
  request.add_output_filter("output_7");
  const Status status = Call(kPredictPath, request, &response);
  EXPECT_TRUE(errors::IsInvalidArgument(status));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("output_7"));
}

TEST_F(ModelServerTest, MistakesAreTold) {
  ASSERT_NO_FATAL_FAILURE(Serve("keras_mlp"));
  const auto ask = [&](const std::function<void(pb::PredictRequest*)>& change) {
    pb::PredictRequest request = RequestOf(calls_[0]);
    change(&request);
    pb::PredictResponse response;
    return Call(kPredictPath, request, &response);
  };
  EXPECT_TRUE(errors::IsNotFound(
      ask([](pb::PredictRequest* r) { r->mutable_model_spec()->set_name("other"); })));
  EXPECT_TRUE(errors::IsNotFound(ask(
      [](pb::PredictRequest* r) { r->mutable_model_spec()->mutable_version()->set_value(7); })));
  EXPECT_TRUE(errors::IsNotFound(
      ask([](pb::PredictRequest* r) { r->mutable_model_spec()->set_signature_name("train"); })));
  const Status missing = ask([](pb::PredictRequest* r) { r->clear_inputs(); });
  EXPECT_TRUE(errors::IsInvalidArgument(missing)) << missing;
  EXPECT_THAT(std::string(Message(missing)), HasSubstr("input 'x' is missing"));
  const Status damaged = ask([](pb::PredictRequest* r) {
    (*r->mutable_inputs())["x"].mutable_tensor_content()->resize(3);
  });
  EXPECT_TRUE(errors::IsInvalidArgument(damaged)) << damaged;
}

TEST_F(ModelServerTest, MetadataAndStatusAreThere) {
  ASSERT_NO_FATAL_FAILURE(Serve("v2_module"));
  pb::GetModelMetadataRequest request;
  request.add_metadata_field("signature_def");
  pb::GetModelMetadataResponse metadata;
  ASSERT_TRUE(Call(kMetadataPath, request, &metadata).ok());
  pb::SignatureDefMap signatures;
  ASSERT_TRUE(signatures.ParseFromString(metadata.metadata().at("signature_def").value()));
  EXPECT_THAT(signatures.signature_def(),
              UnorderedElementsAre(Key("serving_default"), Key("lookup"), Key("pair")));
  pb::GetModelStatusResponse status;
  ASSERT_TRUE(Call(kStatusPath, pb::GetModelStatusRequest(), &status).ok());
  ASSERT_EQ(status.model_version_status_size(), 1);
  EXPECT_EQ(status.model_version_status(0).state(), pb::ModelVersionStatus::AVAILABLE);
}

TEST(ServedModelTest, TheGreatestVersionOfAFolderIsServed) {
  const std::string folder = StrCat(::testing::TempDir(), "/versions/digits");
  FileSystem* const files = PosixFileSystem();
  for (const char* version : {"3", "12", "notes"}) {
    const std::string directory = JoinPath(folder, version);
    for (const char* file : {"saved_model.pb", "variables/variables.index",
                             "variables/variables.data-00000-of-00001"}) {
      const auto bytes = files->ReadFile(StrCat(kFolder, "keras_mlp/", file));
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      ASSERT_TRUE(files->CreateDirectories(JoinPath(directory, "variables")).ok());
      ASSERT_TRUE(files->WriteFileAtomically(JoinPath(directory, file), *bytes).ok());
    }
  }
  for (const char* given : {"", "/", "/12"}) {
    const auto model = ServedModel::Load({.directory = folder + given});
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->version(), 12);
    EXPECT_EQ((*model)->name(), "digits");
  }
  EXPECT_TRUE(errors::IsNotFound(
      ServedModel::Load({.directory = StrCat(::testing::TempDir(), "/versions")}).status()));
}

}  // namespace
}  // namespace millrace
