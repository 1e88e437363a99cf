# SPDX-License-Identifier: Apache-2.0
"""Reads event files of ours with TensorBoard: its reader, then its server over HTTP.

    python read_events.py --writer "$PWD/bazel-bin/tests/summary/write_events"

Exit code 1 if anything is not as it was written; 77 if there is no TensorBoard.
"""

import argparse
import glob
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

RUNS = ["one", "two"]


class Checks:
    """Counts what is as expected and prints what is not."""

    def __init__(self):
        self.passed = 0
        self.failed = 0

    def equal(self, what, found, expected):
        if found == expected:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}: {found!r}, expected {expected!r}")

    def true(self, what, found):
        self.equal(what, bool(found), True)


def read_with_accumulator(folder, checks):
    """What TensorBoard's reader makes of the files."""
    import numpy as np
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.util import tensor_util

    files = glob.glob(os.path.join(folder, "one", "events.out.tfevents.*.v2"))
    checks.equal("files of a run", len(files), 1)
    events = event_accumulator.EventAccumulator(os.path.join(folder, "one"))
    events.Reload()
    checks.equal("file version", events.file_version, 2.0)
    tensors = events.Tags()["tensors"]
    for tag in ["loss", "weights", "pictures", "note", "table", "keras"]:
        checks.true(f"tag {tag}", tag in tensors)
    checks.equal("steps", [e.step for e in events.Tensors("loss")], list(range(5)))
    losses = [tensor_util.make_ndarray(e.tensor_proto).item() for e in events.Tensors("loss")]
    checks.true("scalars", np.allclose(losses, [0.5 / (i + 1) for i in range(5)]))
    rows = tensor_util.make_ndarray(events.Tensors("weights")[0].tensor_proto)
    checks.equal("histogram", rows.tolist(), [[1, 2, 1], [2, 3, 1], [3, 4, 1], [4, 5, 2]])
    checks.equal("plugin", events.SummaryMetadata("loss").plugin_data.plugin_name, "scalars")
    checks.equal("run metadata", events.Tags()["run_metadata"], ["step 3"])
    devices = {d.device for d in events.RunMetadata("step 3").step_stats.dev_stats}
    checks.true("devices of a step", "/job:localhost/replica:0/task:0/device:CPU:0" in devices)


class Server:
    """A TensorBoard of this process, asked over HTTP."""

    def __init__(self, folder):
        from tensorboard import default, program

        board = program.TensorBoard(default.get_plugins())
        board.configure(
            argv=[None, "--logdir", folder, "--host", "127.0.0.1", "--port", "0",
                  "--load_fast", "false"])
        self._url = board.launch()

    def get(self, path, body=None, **query):
        url = self._url + "data/" + path
        if query:
            url += "?" + urllib.parse.urlencode(query)
        request = urllib.request.Request(url, data=None if body is None else body.encode())
        if body is not None:
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def json(self, path, body=None, **query):
        return json.loads(self.get(path, body, **query))

    def wait_for_runs(self, runs, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if (sorted(self.json("runs")) == runs
                    and sorted(self.json("plugin/scalars/tags")) == runs
                    and sorted(self.json("plugin/graphs/info")) == runs):
                return True
            time.sleep(0.5)
        return False


def ask_server(folder, checks):
    """What a browser would be shown."""
    server = Server(folder)
    checks.true("runs", server.wait_for_runs(RUNS))
    tags = server.json("plugin/scalars/tags")["one"]
    checks.equal("description", tags["loss"]["description"], "<p>what <em>falls</em></p>")
    scalars = server.json("plugin/scalars/scalars", run="two", tag="loss")
    checks.equal("scalars", [s[1:] for s in scalars][0], [0, 0.25])
    checks.equal("number of scalars", len(scalars), 5)
    histogram = server.json("plugin/histograms/histograms", run="one", tag="weights")
    checks.equal("histogram", histogram[0][1:],
                 [1, [[1, 2, 1], [2, 3, 1], [3, 4, 1], [4, 5, 2]]])
    check_images(server, checks)
    note = server.json("plugin/text/text", run="one", tag="note")
    checks.equal("text", note[0]["text"], "<p><strong>bold</strong></p>")
    table = server.json("plugin/text/text", run="one", tag="table")
    checks.equal("cells of a table", table[0]["text"].count("<td>"), 4)
    info = server.json("plugin/graphs/info")["one"]
    checks.true("graph of a run", info["run_graph"])
    checks.true("graph of layers", info["tags"]["keras"]["conceptual_graph"])
    checks.true("profile", info["tags"]["step 3"]["profile"])
    graph = server.get("plugin/graphs/graph", run="one", conceptual="false").decode()
    checks.equal("placed nodes", graph.count('device: "/job:localhost/replica:0/task:0/'),
                 graph.count("node {"))
    layers = server.get("plugin/graphs/graph", run="one", conceptual="true", tag="keras").decode()
    checks.true("layers", '"model/hidden"' in layers and '"model/out"' in layers)
    profile = server.get("plugin/graphs/run_metadata", run="one", tag="step 3").decode()
    checks.true("statistics of nodes", 'node_name: "out/Mul"' in profile)
    check_hparams(server, checks)


def check_images(server, checks):
    images = server.json("plugin/images/images", run="one", tag="pictures", sample=1)
    checks.equal("step of the image", [i["step"] for i in images], [2])
    png = server.get("plugin/images/individualImage?" + images[0]["query"])
    checks.equal("a PNG", png[:8], b"\x89PNG\r\n\x1a\n")
    try:
        from PIL import Image
    except ImportError:
        return
    image = Image.open(io.BytesIO(png))
    checks.equal("size", image.size, (4, 3))
    checks.equal("pixels", image.tobytes(), bytes(range(36, 72)))


def check_hparams(server, checks):
    experiment = server.json("plugin/hparams/experiment", body="{}")
    types = {i["name"]: i["type"] for i in experiment["hparamInfos"]}
    checks.equal("types of hyperparameters", types, {
        "rate": "DATA_TYPE_FLOAT64", "units": "DATA_TYPE_FLOAT64",
        "optimizer": "DATA_TYPE_STRING", "average": "DATA_TYPE_BOOL"})
    groups = server.json("plugin/hparams/session_groups", body=json.dumps({
        "colParams": [], "startIndex": 0, "sliceSize": 10,
        "allowedStatuses": ["STATUS_SUCCESS"]}))["sessionGroups"]
    rates = {g["sessions"][0]["name"]: g["hparams"]["rate"] for g in groups}
    checks.equal("trials", rates, {"one": 0.5, "two": 0.25})
    losses = {g["sessions"][0]["name"]: g["metricValues"][0]["value"] for g in groups}
    checks.equal("last losses", {k: round(v, 6) for k, v in losses.items()},
                 {"one": 0.1, "two": 0.05})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writer", required=True, help="tests/summary:write_events, built")
    options = parser.parse_args()
    try:
        import tensorboard
    except ImportError:
        print("NOT RUN: this Python has no TensorBoard")
        return 77
    print(f"TensorBoard {tensorboard.__version__}")
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.writer, folder], check=True)
        read_with_accumulator(folder, checks)
        ask_server(folder, checks)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    # The server's threads do not end by themselves.
    code = main()
    sys.stdout.flush()
    os._exit(code)
