# SPDX-License-Identifier: Apache-2.0
"""The stock client of TensorFlow Serving against `millrace model serve`.

    python serving.py --millrace "$PWD/bazel-bin/tools/millrace" [--bench]

--bench also prints how many calls a second a model of three big layers answers, with rows of
several calls put together and without.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2
from tensorflow_serving.apis import model_service_pb2_grpc, predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from saved_models import compare, expected

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDED = os.path.join(HERE, "..", "saved_models", "testdata")
TIMEOUT = 60


class Server:
    def __init__(self, millrace, directory, *flags):
        self.process = subprocess.Popen(
            [millrace, "model", "serve", directory, "--port=0", *flags],
            stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"on grpc (\S+)", line)
            if found:
                break
        else:
            raise RuntimeError(f"the server of {directory} did not start")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.channel = grpc.insecure_channel(found.group(1))
        self.predict = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.channel.close()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(TIMEOUT) == 0


def request_of(name, signature, inputs):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    for key, value in inputs.items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    return request


def predictions_are_equal(millrace):
    for name in sorted(e.name for e in os.scandir(RECORDED) if e.is_dir()):
        directory = os.path.join(RECORDED, name)
        with Server(millrace, directory) as server:
            for signature, call in expected(directory).items():
                response = server.predict.Predict(request_of(name, signature, call["inputs"]),
                                                  timeout=TIMEOUT)
                compare({k: tf.make_ndarray(v) for k, v in response.outputs.items()},
                        call["outputs"], name)
                assert response.model_spec.name == name
        print("ok    ", name, flush=True)


def metadata_status_and_errors(millrace):
    with Server(millrace, os.path.join(RECORDED, "v2_module")) as server:
        request = get_model_metadata_pb2.GetModelMetadataRequest()
        request.model_spec.name = "v2_module"
        request.metadata_field.append("signature_def")
        signatures = get_model_metadata_pb2.SignatureDefMap()
        metadata = server.predict.GetModelMetadata(request, timeout=TIMEOUT).metadata
        assert metadata["signature_def"].Unpack(signatures)
        assert set(signatures.signature_def) == {"serving_default", "lookup", "pair"}
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = "v2_module"
        (version,) = server.models.GetModelStatus(request, timeout=TIMEOUT).model_version_status
        assert version.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE
        for wrong, code in [
                (request_of("other", "", {}), grpc.StatusCode.NOT_FOUND),
                (request_of("v2_module", "train", {}), grpc.StatusCode.NOT_FOUND),
                (request_of("v2_module", "", {}), grpc.StatusCode.INVALID_ARGUMENT)]:
            try:
                server.predict.Predict(wrong, timeout=TIMEOUT)
                raise AssertionError("no error")
            except grpc.RpcError as error:
                assert error.code() == code, error
    print("ok     metadata, status, errors", flush=True)


def rate(server, request, callers, seconds):
    """Calls a second that so many outstanding calls get."""
    end = time.monotonic() + seconds
    counts = [0] * callers

    def ask(i):
        while time.monotonic() < end:
            server.predict.Predict(request, timeout=TIMEOUT)
            counts[i] += 1

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def bench(millrace):
    size, callers, seconds = 2048, 32, 5
    with tempfile.TemporaryDirectory() as folder:
        module = tf.Module()
        module.w = [tf.Variable(tf.random.normal([size, size], stddev=size ** -0.5))
                    for _ in range(3)]

        def forward(x):
            for w in module.w:
                x = tf.nn.relu(x @ w)
            return {"y": x[:, :10]}

        module.f = tf.function(forward, input_signature=[
            tf.TensorSpec([None, size], tf.float32, name="x")])
        directory = os.path.join(folder, "layers")
        tf.saved_model.save(module, directory, signatures={"serving_default": module.f})
        request = request_of("layers", "", {"x": np.ones([1, size], np.float32)})
        rates = {}
        for rows in [1, 64]:
            with Server(millrace, directory, f"--max_batch_rows={rows}") as server:
                rate(server, request, callers, 1)
                rates[rows] = rate(server, request, callers, seconds)
                print(f"--max_batch_rows={rows}: {rates[rows]:.0f} calls a second", flush=True)
        print(f"batched / unbatched: {rates[64] / rates[1]:.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--bench", action="store_true")
    args = parser.parse_args()
    predictions_are_equal(args.millrace)
    metadata_status_and_errors(args.millrace)
    if args.bench:
        bench(args.millrace)
    return 0


if __name__ == "__main__":
    sys.exit(main())
