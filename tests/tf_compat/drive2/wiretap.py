# SPDX-License-Identifier: Apache-2.0
"""Notes what a client sends: calls per method, and the ops in them.

With TF2DRIVE_TAP=FILE each server of the suite gets a relay in front of it.
Clients and servers reach the task through the relay; the server itself listens
on another port.  When the run ends, FILE holds one JSON object per relay:
{"calls": {method: n}, "items": {kind: n}, "ops": {op: n}, "function_ops": ...}.
"""
import collections
import json
import os
import signal
import threading
import time


class Relay:
    def __init__(self, listen, server, out):
        import grpc

        import eager_wire as pb
        self.pb, self.out = pb, out
        self.notes = {k: collections.Counter()
                      for k in ("calls", "items", "ops", "function_ops")}
        self.lock = threading.Lock()
        options = [("grpc.max_receive_message_length", -1),
                   ("grpc.max_send_message_length", -1)]
        channel = grpc.insecure_channel(server, options)
        relay = self

        class Handler(grpc.GenericRpcHandler):
            def service(self, details):
                method = details.method
                with relay.lock:
                    relay.notes["calls"][method] += 1
                if method.endswith("/StreamingEnqueue"):
                    call = channel.stream_stream(method)

                    def stream(requests, context):
                        def seen():
                            for r in requests:
                                relay.look("/Enqueue", r)
                                yield r
                        yield from self.run(call, seen(), context, True)
                    return grpc.stream_stream_rpc_method_handler(stream)
                call = channel.unary_unary(method)

                def unary(request, context):
                    relay.look(method, request)
                    return self.run(call, request, context, False)
                return grpc.unary_unary_rpc_method_handler(unary)

            @staticmethod
            def run(call, request, context, stream):
                try:
                    if stream:
                        inner = call(request)
                    else:
                        inner = call.future(request)
                    context.add_callback(inner.cancel)
                    if stream:
                        return inner
                    answer = inner.result()
                    context.set_trailing_metadata(inner.trailing_metadata())
                    return answer
                except grpc.RpcError as e:
                    context.set_trailing_metadata(e.trailing_metadata() or ())
                    context.abort(e.code(), e.details())

        from concurrent import futures
        self.grpc_server = grpc.server(
            futures.ThreadPoolExecutor(200), handlers=[Handler()],
            options=options)
        self.grpc_server.add_insecure_port(listen)
        self.grpc_server.start()

    def look(self, method, data):
        pb, notes = self.pb, self.notes
        operations = []
        with self.lock:
            if method.endswith("/Enqueue"):
                for item in pb.EnqueueRequest.FromString(data).queue:
                    for field, value in item.ListFields():
                        notes["items"][field.name] += 1
                        if field.name == "operation":
                            operations.append(value)
                        if field.name == "register_function":
                            library = list(value.library.function)
                            for f in [value.function_def] + library:
                                notes["function_ops"].update(
                                    n.op for n in f.node_def)
            elif method.endswith("/RunComponentFunction"):
                operations.append(
                    pb.RunComponentFunctionRequest.FromString(data).operation)
            for op in operations:
                notes["ops"]["(function)" if op.is_function or
                             op.name.startswith("__") else op.name] += 1

    def write(self):
        with open(self.out, "a") as f:
            f.write(json.dumps(self.notes) + "\n")


def _main(listen, server, out):
    import cluster
    cluster.die_with_parent()
    done = threading.Event()
    signal.signal(signal.SIGTERM, lambda *a: done.set())
    relay = Relay(listen, server, out)
    parent = os.getppid()
    last = None
    while not done.wait(1.0) and os.getppid() == parent:
        now = sum(relay.notes["calls"].values())
        if now != last:
            last = now
            name = "%s.%d" % (out, os.getpid())
            with open(name + "~", "w") as f:
                f.write(json.dumps(relay.notes))
            os.replace(name + "~", name)
    os._exit(0)


def insert(c):
    """Puts a relay before every task of a cluster that is not started yet."""
    import subprocess
    import sys

    import cluster
    c.server_spec = {job: list(hosts) for job, hosts in c.spec.items()}
    c.spec = {job: ["127.0.0.1:%d" % cluster.free_port() for _ in hosts]
              for job, hosts in c.spec.items()}
    for job, hosts in c.spec.items():
        for listen, server in zip(hosts, c.server_spec[job]):
            subprocess.Popen([sys.executable, os.path.abspath(__file__), listen,
                              server, os.environ["TF2DRIVE_TAP"]])
            host, port = listen.split(":")
            import socket
            while True:
                try:
                    socket.create_connection((host, int(port)), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)


def total(out):
    import glob
    sums = {}
    for path in glob.glob(out + ".*[0-9]"):
        with open(path) as f:
            for kind, counts in json.load(f).items():
                sums.setdefault(kind, collections.Counter()).update(counts)
    return sums


if __name__ == "__main__":
    import sys
    if sys.argv[1] == "--total":
        for kind, counts in total(sys.argv[2]).items():
            print(kind)
            print("   ", ", ".join("%s %d" % kv for kv in
                                   sorted(counts.items())))
    else:
        _main(*sys.argv[1:])
