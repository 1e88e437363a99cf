// SPDX-License-Identifier: Apache-2.0
// The calls of TensorFlow Serving that clients of models make: Predict, GetModelMetadata and
// GetModelStatus.
#ifndef SERVING_PREDICT_SERVICE_H_
#define SERVING_PREDICT_SERVICE_H_

#include "serving/served_model.h"
#include "transport/grpc/rpc_server.h"

namespace millrace {

inline constexpr char kPredictPath[] = "/tensorflow.serving.PredictionService/Predict";
inline constexpr char kMetadataPath[] = "/tensorflow.serving.PredictionService/GetModelMetadata";
inline constexpr char kStatusPath[] = "/tensorflow.serving.ModelService/GetModelStatus";

// `model` must outlive the server.
void AddPredictMethods(RpcServer* server, ServedModel* model);

}  // namespace millrace

#endif  // SERVING_PREDICT_SERVICE_H_
