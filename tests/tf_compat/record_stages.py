# SPDX-License-Identifier: Apache-2.0
"""Records what TensorFlow says of staging maps, and the definitions of ops that came with them.

    python record_stages.py
writes ../goldens/opdefs/ops_stages.pb and ../goldens/kernels/cases_stages.pb; see record_kernels.py.
"""
import os

from record_kernels import HERE, np, tf, v1
from record_relatives import Programs

from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import op_def_registry

raw = tf.raw_ops
KINDS = ("Map", "OrderedMap")
FAMILY = "Clear IncompleteSize Peek Size Stage Unstage UnstageNoKey".split()
OPS = ["CSVDataset", "CSVDatasetV2", "MapDefun"] + [k + op for k in KINDS for op in FAMILY]


def record_definitions():
    ops = op_def_pb2.OpList(op=[op_def_registry.get(name) for name in sorted(OPS)])
    with open(os.path.join(HERE, "..", "goldens", "opdefs", "ops_stages.pb"), "wb") as file:
        file.write(ops.SerializeToString(deterministic=True))


class Steps(Programs):
    def steps(self, op, build):
        """One case of several steps in one session. build() gives them: what to fetch, or an op to
        run, and of an error its words."""
        with tf.Graph().as_default() as graph:
            n = self.names[op] = self.names.get(op, 0) + 1
            case = self.set.case.add(name=f"{op}_{self.tag}_{n}", op=op, family=5, compare="bits")
            steps = build()
            case.graph_def = graph.as_graph_def().SerializeToString()
            config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
            with v1.Session(graph=graph, config=config) as session:
                for step in steps:
                    what, error = step if isinstance(step, tuple) else (step, "")
                    self.step(case, session, what, error)
            print(case.name, len(steps), "steps")

    @staticmethod
    def step(case, session, what, error):
        step = case.step.add()
        if isinstance(what, tf.Operation):
            step.target.append(what.name)
            fetched = []
        else:
            fetched = list(what) if isinstance(what, (list, tuple)) else [what]
            step.fetch.extend(t.name for t in fetched)
        try:
            values = session.run(what)
        except tf.errors.OpError as e:
            if not error or error not in e.message:
                raise
            step.error_code, step.error_contains = e.error_code, error
            return
        if error:
            raise AssertionError(f"{case.name} gave no error")
        values = values if isinstance(what, (list, tuple)) else [values]
        for t, value in zip(fetched, values):
            step.expected.append(tf.make_tensor_proto(value, t.dtype).SerializeToString())


class Map:
    """The ops of one map."""

    def __init__(self, kind, dtypes, **limits):
        self.kind, self.dtypes = kind, dtypes
        self.limits = dict(limits, shared_name="m")

    def op(self, name, **inputs):
        return getattr(raw, self.kind + name)(**inputs, **self.limits)

    def put(self, key, *values, at=None):
        at = range(len(values)) if at is None else at
        return self.op("Stage", key=np.int64(key), indices=np.int32(at), dtypes=self.dtypes,
                       values=[tf.constant(v, self.dtypes[i] if i < len(self.dtypes) else None)
                               for v, i in zip(values, at)])

    def of(self, at):
        at = range(len(self.dtypes)) if at is None else at
        return dict(indices=np.int32(at), dtypes=[self.dtypes[i % len(self.dtypes)] for i in at])

    def get(self, key, at=None):
        return self.op("Unstage", key=np.int64(key), **self.of(at))

    def peek(self, key, at=None):
        return self.op("Peek", key=np.int64(key), **self.of(at))

    def pop(self, at=None):
        key, values = self.op("UnstageNoKey", **self.of(at))
        return [key] + list(values)

    def sizes(self):
        return [self.op("Size", dtypes=self.dtypes), self.op("IncompleteSize", dtypes=self.dtypes)]

    def clear(self):
        return self.op("Clear", dtypes=self.dtypes)


def record_maps(r):
    f, i, s = tf.float32, tf.int32, tf.string
    for kind in KINDS:
        def whole():
            m = Map(kind, [f, i])
            return [m.sizes(), m.put(7, 1.5, 2), m.put(3, [2.5], [[1], [2]]), m.sizes(), m.peek(3),
                    m.peek(3, [1]), m.get(7), m.sizes(), m.pop(), m.sizes()]

        def pieces():
            m = Map(kind, [f, i, s])
            gone = "Tensor at index '0' for key '0' has already been removed."
            twice = "The tensor for index '2' for key '1' was already initialized '3'."
            return [m.put(0, 1., "a", at=[0, 2]), m.sizes(), m.put(1, 2., "b", at=[0, 2]),
                    m.sizes(), (m.put(1, "c", at=[2]), twice), m.put(0, 5, at=[1]), m.sizes(),
                    m.get(0, [0, 2]), m.sizes(), (m.get(0, [0]), gone), (m.peek(0, [0, 1]), gone),
                    m.get(0, [1]), m.sizes(), m.put(1, 6, at=[1]), m.pop([0]), m.sizes(),
                    m.pop([1, 2]), m.sizes()]

        def cleared():
            m = Map(kind, [f, f], capacity=2)
            return [m.put(1, 1., 2.), m.put(2, 3., 4.), m.put(3, 5.), m.sizes(), m.clear(),
                    m.sizes(), m.put(2, 6., 7.), m.get(2), m.sizes()]

        def again():
            m = Map(kind, [f])
            return [m.put(1, 1.), m.put(1, 2.), m.sizes(), m.get(1), m.sizes()]

        def wrong():
            m = Map(kind, [f], memory_limit=100)
            two = Map(kind, [f, f], memory_limit=100)
            large = ("Attempted to insert tensors with combined size of '104' bytes into Staging "
                     "Area with a memory limit of '100'.")
            scalar, stage = "key must be an int64 scalar", kind + "Stage"
            value = dict(values=[tf.constant(1.)], dtypes=[f], **m.limits)
            put = lambda key, at: getattr(raw, stage)(key=np.int64(key), indices=np.int32(at),
                                                     **value)
            return [(m.put(1, [1.] * 26), large), (put([1, 2], [0]), scalar),
                    (put([], [0]), "key must not be empty"), (put(1, []), "Indices are empty"),
                    (m.get([1]), scalar), (m.peek([[1]]), scalar),
                    (two.put(1, 1., 2., at=[1, 0]), "Indices are not strictly ordered"),
                    (two.put(1, 1., 2., at=[0, 0]), "Indices are not strictly ordered"),
                    m.put(4, 1.), (m.get(4, [1]), "Index '1' for key '4' was out of bounds '1'.")]

        def ordered():
            m = Map(kind, [i])
            return ([m.put(key, key) for key in (5, -3, 8, 0)] + [m.sizes()] +
                    [m.pop() for _ in range(4)] + [m.sizes()])

        programs = [whole, pieces, cleared, again, wrong]
        if kind == "OrderedMap":
            programs.append(ordered)
        for build in programs:
            r.steps(kind + "Stage", build)


def record_areas(r):
    def area():
        of = dict(dtypes=[tf.float32, tf.string], shared_name="s")
        put = lambda *values: raw.Stage(values=[tf.constant(v) for v in values], shared_name="s")
        return [put(1., "a"), put([2.], ["b", "c"]), raw.StageSize(**of),
                list(raw.StagePeek(index=1, **of)), list(raw.Unstage(**of)), raw.StageSize(**of),
                raw.StageClear(**of), raw.StageSize(**of)]

    r.steps("Stage", area)


if __name__ == "__main__":
    record_definitions()
    recorder = Steps("stages")
    record_maps(recorder)
    record_areas(recorder)
    recorder.write("cases_stages.pb")
