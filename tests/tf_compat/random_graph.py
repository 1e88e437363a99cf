# SPDX-License-Identifier: Apache-2.0
"""Random graphs that exercise the rules of placement.

A graph is written as NodeDefs, so that nothing but the seed decides. Every graph can be run:
whatever is asked of the devices, each op gets values that it takes. Constants have 64
elements, for TensorFlow copies smaller ones to the devices of their users.
"""
import math
import random

import tensorflow.compat.v1 as tf
from tensorflow.core.framework import graph_pb2, types_pb2

FLOAT = types_pb2.DT_FLOAT

# A request for a device, and how often it is drawn.
REQUESTS = [
    ("", 40), ("/job:ps", 4), ("/job:worker", 4), ("/task:0", 2), ("/task:1", 3), ("/cpu:0", 2),
    ("/cpu:1", 3), ("/device:CPU:*", 1), ("/job:ps/task:0", 4),
    ("/job:ps/task:1", 4), ("/job:worker/task:0", 4), ("/job:worker/task:1", 5),
    ("/job:ps/cpu:1", 3), ("/task:1/cpu:0", 2), ("/replica:0", 1), ("/job:*/task:1", 1),
    ("/cpu:1/job:worker", 2), ("/job:ps/replica:0/task:0/device:CPU:1", 3),
    ("/job:worker/replica:0/task:1/device:CPU:0", 3), ("/job:ps/job:worker", 1),
]
SOFT_REQUESTS = [("/gpu:0", 3), ("/job:ps/gpu:2", 2), ("/cpu:7", 2),
                 ("/job:worker/task:1/device:CPU:5", 2), ("/device:XPU:0", 1)]
WRONG_REQUESTS = [("/job:ps/task:9", 1), ("/job:nowhere", 1), ("/gpu:0", 1), ("/cpu:4", 1),
                  ("/replica:3", 1), ("/device:cpu:0", 1)]


def draw(rng, table):
    return rng.choices([value for value, _ in table], [weight for _, weight in table])[0]


class RandomGraph:
    """The graph of one seed and how to run it.

    graph_def, the targets to run first (`init`) and then (`targets`), the task that is the
    master, and the settings `soft` and `filters` of the session. With `calls`, handles also pass
    through functions that stay functions.
    """

    def __init__(self, seed, min_nodes=20, max_nodes=2000, calls=False):
        self.seed = seed
        self.calls = calls
        rng = self._rng = random.Random("placement %d" % seed)
        self.graph_def = graph_pb2.GraphDef()
        self.graph_def.versions.producer = 1882
        self.init = []
        self.soft = rng.random() < 0.4
        self._wrong = rng.random() < 0.06
        # Most large graphs would contradict themselves if all asked for much.
        size = int(math.exp(rng.uniform(math.log(min_nodes), math.log(max_nodes + 1))))
        self._busy = min(1.0, rng.choice([20, 60, 400]) / size)
        # Devices on the consumers of references are the usual source of errors.
        self._careful = rng.random() < 0.5
        self._names, self._used = [], set()
        self._values, self._refs, self._handles, self._queues = [], [], [], []
        self._add_constant()
        self._add_variable()
        while len(self.graph_def.node) < size:
            self._add_something()
        if rng.random() < 0.3:
            self._colocate_with_later_ones(rng.randint(1, 3))
        self.targets = [n for n in self._names if n not in self._used and n not in self.init]
        self.master = rng.choice([("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)])
        self.filters = []
        if rng.random() < 0.1:
            self.filters = rng.choice([["/job:ps"], ["/job:worker"], ["/job:ps/task:1"]])

    def __str__(self):
        return "seed %d: %d nodes, master /job:%s/task:%d, %s%s" % (
            self.seed, len(self.graph_def.node), self.master[0], self.master[1],
            "soft" if self.soft else "hard",
            ", filters " + " ".join(self.filters) if self.filters else "")

    def _request(self):
        r = self._rng.random()
        if self._wrong and r < 0.03:
            return draw(self._rng, WRONG_REQUESTS)
        if self.soft and r < 0.1:
            return draw(self._rng, SOFT_REQUESTS)
        return draw(self._rng, REQUESTS)

    def _colocate_with_later_ones(self, count):
        nodes = self.graph_def.node
        for _ in range(count):
            first, second = sorted(self._rng.sample(range(len(nodes)), 2))
            if "_class" not in nodes[first].attr:
                label = b"loc:@" + nodes[second].name.encode()
                nodes[first].attr["_class"].list.s.append(label)

    def _add(self, op, inputs=(), device=None, plain=False, tied=False, **attrs):
        """Adds a node; `plain` without colocation or control edges; `tied` if it takes a
        reference or a handle. An int is a type."""
        rng = self._rng
        node = self.graph_def.node.add()
        node.op, node.name = op, "%s_%d" % (op.lower(), len(self.graph_def.node))
        if device is not None:
            node.device = device
        elif not (tied and self._careful):
            node.device = self._request()
        for tensor in inputs:
            node.input.append(tensor)
            self._used.add(tensor.split(":")[0])
        for key, value in attrs.items():
            if isinstance(value, int):
                node.attr[key].type = value
            else:
                node.attr[key].CopyFrom(value)
        if not plain and self._names:
            if rng.random() < 0.08 * self._busy:
                labels = [rng.choice(self._names)]
                if rng.random() < 0.2:
                    labels.append(rng.choice(self._names))
                if rng.random() < 0.8:
                    node.device = ""
                node.attr["_class"].list.s.extend(("loc:@" + x).encode() for x in labels)
            if rng.random() < 0.05:
                before = rng.choice(self._names)
                node.input.append("^" + before)
                self._used.add(before)
        self._names.append(node.name)
        return node.name

    def _add_constant(self, **kw):
        value = tf.AttrValue()
        value.tensor.CopyFrom(
            tf.make_tensor_proto(self._rng.uniform(-1, 1), tf.float32, shape=[8, 8]))
        name = self._add("Const", dtype=FLOAT, value=value, **kw)
        self._values.append(name)
        return name

    @staticmethod
    def _text(text=""):
        return tf.AttrValue(s=text.encode())

    @staticmethod
    def _number(number):
        return tf.AttrValue(i=number)

    def _add_variable(self):
        start = self._add_constant(device="", plain=True)
        shape = tf.AttrValue()
        for _ in range(2):
            shape.shape.dim.add().size = 8
        text = self._text()
        if self._rng.random() < 0.5:
            variable = self._add("VarHandleOp", plain=True, dtype=FLOAT, shape=shape,
                                 container=text,
                                 shared_name=self._text("v%d" % len(self.graph_def.node)))
            self.init.append(self._add("AssignVariableOp", [variable, start], plain=True,
                                       tied=True, dtype=FLOAT))
            self._handles.append(variable)
        else:
            variable = self._add(self._rng.choice(["VariableV2", "Variable"]), plain=True,
                                 dtype=FLOAT, shape=shape, container=text, shared_name=text)
            self.init.append(self._add("Assign", [variable, start], plain=True, tied=True, T=FLOAT))
            self._refs.append(variable)

    def _add_queue(self):
        types = tf.AttrValue()
        types.list.type.append(FLOAT)
        new = self._rng.random() < 0.5
        self._queues.append((new, self._add(
            "FIFOQueueV2" if new else "FIFOQueue", plain=True, component_types=types,
            container=self._text(),
            shared_name=self._text("q%d" % len(self.graph_def.node)))))

    def _add_something(self):
        """A constant, a variable, a queue, arithmetic, or a use of what there is."""
        rng = self._rng
        x, y = rng.choice(self._values), rng.choice(self._values)
        makers = [
            (5, self._add_constant),
            (5, self._add_variable),
            (1, self._add_queue),
            (12, lambda: self._value("AddV2", [x, y], T=FLOAT)),
            (6, lambda: self._value("Sub", [x, y], T=FLOAT)),
            (8, lambda: self._value("MatMul", [x, y], T=FLOAT)),
            (12, lambda: self._value("Identity", [x], T=FLOAT)),
            (6, lambda: self._value("Tanh", [x], T=FLOAT)),
            (3, lambda: self._value("AddN", [x, y, x], T=FLOAT, N=self._number(3))),
            (5, lambda: self._add(rng.choice(["Shape", "Size", "Rank"]), [x], T=FLOAT)),
            (3, lambda: self._add("NoOp", ["^" + n.split(":")[0] for n in {x, y}])),
            (2, self._add_pair),
            (12, self._use_ref),
            (14, self._use_handle),
            (2, self._use_queue),
        ]
        rng.choices([f for _, f in makers], [w for w, _ in makers])[0]()

    def _value(self, op, inputs, **kw):
        self._values.append(self._add(op, inputs, **kw))

    def _add_pair(self):
        """An op of two outputs, and one that joins them again."""
        x, y = self._rng.choice(self._values), self._rng.choice(self._values)
        pair = self._add("IdentityN", [x, y], T=tf.AttrValue(
            list=tf.AttrValue.ListValue(type=[FLOAT, FLOAT])))
        self._values += [pair, pair + ":1"]

    def _use_ref(self):
        if not self._refs:
            return
        rng = self._rng
        variable, x = rng.choice(self._refs), rng.choice(self._values)
        which = rng.random()
        if which < 0.3:
            self._value("Identity", [variable], T=FLOAT)
        elif which < 0.5:
            self._refs.append(self._add(rng.choice(["AssignAdd", "AssignSub"]), [variable, x],
                                        tied=True, T=FLOAT))
        elif which < 0.65:
            self._refs.append(self._add("RefIdentity", [variable], tied=True, T=FLOAT))
        elif which < 0.75:
            self._add("Shape", [variable], T=FLOAT)
        else:
            self._value("AddV2", [variable, x], T=FLOAT)

    def _call(self):
        """A call of a function that returns one of the handles that it takes."""
        rng = self._rng
        handles = [rng.choice(self._handles) for _ in range(rng.randint(1, 3))]
        picked = rng.randrange(len(handles))
        name = "Pick%dOf%d" % (picked, len(handles))
        if all(f.signature.name != name for f in self.graph_def.library.function):
            function = self.graph_def.library.function.add()
            function.signature.name = name
            function.attr["_noinline"].b = True
            for i in range(len(handles)):
                function.signature.input_arg.add(name="h%d" % i, type=types_pb2.DT_RESOURCE)
            function.signature.output_arg.add(name="out", type=types_pb2.DT_RESOURCE)
            function.ret["out"] = "same:output:0"
            node = function.node_def.add(name="same", op="Identity", input=["h%d" % picked])
            node.attr["T"].type = types_pb2.DT_RESOURCE
        types = [tf.AttrValue(list=tf.AttrValue.ListValue(type=[types_pb2.DT_RESOURCE] * n))
                 for n in (len(handles), 1)]
        self._handles.append(self._add(
            "PartitionedCall", handles, Tin=types[0], Tout=types[1],
            f=tf.AttrValue(func=tf.NameAttrList(name=name)), config=self._text(),
            config_proto=self._text(), executor_type=self._text()))

    def _use_handle(self):
        if not self._handles:
            return
        rng = self._rng
        if self.calls and rng.random() < 0.3:
            return self._call()
        handle, x = rng.choice(self._handles), rng.choice(self._values)
        which = rng.random()
        if which < 0.5:
            self._value("ReadVariableOp", [handle], tied=True, dtype=FLOAT)
        elif which < 0.7:
            self._add(rng.choice(["AssignAddVariableOp", "AssignSubVariableOp"]), [handle, x],
                      tied=True, dtype=FLOAT)
        elif which < 0.85:
            self._handles.append(self._add("Identity", [handle], tied=True,
                                           T=types_pb2.DT_RESOURCE))
        elif which < 0.95:
            self._add("VarIsInitializedOp", [handle], tied=True)
        else:
            self._add("VariableShape", [handle], tied=True, out_type=types_pb2.DT_INT32)

    def _use_queue(self):
        if not self._queues:
            return
        new, queue = self._rng.choice(self._queues)
        self._add("QueueSizeV2" if new else "QueueSize", [queue], tied=True)
