# SPDX-License-Identifier: Apache-2.0
"""Random calls of single ops: attributes and operands drawn from an op's definition."""
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import op_def_registry

TYPES = ("float32", "float64", "int32", "int64", "float16", "bfloat16", "uint8", "int8", "int16",
         "uint16", "uint32", "uint64", "bool", "complex64", "complex128", "string")
SPECIAL = (0., -0., 1., -1., np.nan, np.inf, -np.inf, .5, -.5, 1e30, -1e30, 2., 127.5, 1e-20, 3.)
WORDS = (b"", b"a", b"b", b"ab", b"abc", b"a b", b" 12 ", b"-1.5", b"nan", b"1e400", b"x,y,z",
         "ä€𝄞".encode(), b"\xff\xfe", b"9223372036854775808", b"0x10", b"A.B", b"aGk=", b"a\0b")

# What is not a function of its operands, opens files, or would wait.
LEFT_OUT = ("Random", "Multinomial", "Sampler", "Shuffle", "File", "Save", "Restore", "Merge",
            "Checkpoint", "Summary", "Print", "Timestamp", "Assert", "Abort", "Const", "Placeholder",
            "Send", "Recv", "Collective", "Dataset", "Iterator", "Function", "Call", "While", "If",
            "Case", "For", "NextIteration", "Enter", "Exit", "Switch", "LoopCond", "Debug", "Copy",
            "PyFunc", "Xla", "TPU", "Tpu", "Nccl", "Ragged", "Cudnn", "Empty", "Mkl", "Audio",
            "Fact", "NoOp", "SymbolicGradient", "ImmutableConst", "FakeParam", "Stack", "Fake",
            "NcclAllReduce", "Conditional", "LoadAndRemap", "Barrier", "ControlTrigger", "Ref",
            "EncodeProto", "DecodeProto", "GenerateVocab")


def names_of_ops(table):
    """Ops with kernels on both sides that are functions of their operands."""
    names = []
    with open(table) as lines:
        for line in lines:
            cells = [c.strip() for c in line.split("|")]
            if len(cells) < 4 or not cells[1][:1].isupper():
                continue
            op = op_def_registry.get(cells[1])
            if op is None or op.is_stateful or any(part in op.name for part in LEFT_OUT):
                continue
            if not hasattr(tf.raw_ops, op.name) or not op.output_arg:
                continue
            fixed = [a.type for a in list(op.input_arg) + list(op.output_arg)]
            if types_pb2.DT_RESOURCE in fixed or types_pb2.DT_VARIANT in fixed or any(
                    a.is_ref for a in op.input_arg):
                continue
            if any(a.type in ("func", "tensor") for a in op.attr):
                continue
            names.append(op.name)
    return names


class Call:
    """One op with attributes and, for each of `Operands`, values for its inputs."""

    def __init__(self, seed, name):
        self.rng = np.random.RandomState(seed)
        self.op = op_def_registry.get(name)
        self.attrs, self.types = {}, {}
        self._draw_shape()
        self._draw_attrs()

    def _chance(self, p):
        return self.rng.uniform() < p

    def _pick(self, values):
        return values[self.rng.randint(len(values))]

    def _dim(self):
        return int(self._pick((0, 1, 1, 2, 2, 3, 3, 4, 5, 7)))

    def _draw_shape(self):
        rank = int(self._pick((0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5)))
        if self.op.name[:4] in ("Conv", "MaxP", "AvgP", "Dept", "Fuse", "Resi", "Spac", "LRN",
                                "LRNG", "Extr", "Crop", "Adju", "RGBT", "HSVT") and self._chance(.9):
            rank = 4
        self.shape = [self._dim() for _ in range(rank)]

    def _draw_attrs(self):
        for attr in self.op.attr:
            self.attrs[attr.name] = self._attr(attr)
        for name in ("T", "Tin", "Tout", "type", "dtype"):
            if isinstance(self.attrs.get(name), tf.DType):
                self.types.setdefault("main", self.attrs[name])

    def _type(self, allowed):
        names = [tf.as_dtype(t).name for t in allowed] or TYPES
        names = [n for n in names if n in TYPES] or names
        common = [n for n in names if n in TYPES[:4]]
        return tf.as_dtype(self._pick(common if common and self._chance(.5) else names))

    def _attr(self, attr):
        given = attr.HasField("default_value") and self._chance(.5)
        allowed = attr.allowed_values.list
        value = attr.default_value
        if attr.type == "type":
            return self._type(allowed.type)
        if attr.type == "list(type)":
            return [self._type(allowed.type) for _ in range(self.rng.randint(1, 4))]
        if attr.type == "bool":
            return bool(value.b) if given else self._chance(.5)
        if attr.type == "int":
            if given:
                return int(value.i)
            low = int(attr.minimum) if attr.has_minimum else -2
            return max(low, int(self.rng.randint(max(low, -2), max(low, 0) + 5)))
        if attr.type == "float":
            return float(value.f) if given else float(self._pick((0., 1., .5, -1., 1e-3, 2., 10.)))
        if attr.type == "string":
            if allowed.s:
                return self._pick(allowed.s)
            if attr.name == "data_format":
                return self._pick((b"NHWC", b"NHWC", b"NHWC", b"NCHW"))
            if attr.name == "padding":
                return self._pick((b"SAME", b"VALID"))
            return value.s if attr.HasField("default_value") else self._pick((b"", b"a", b"SAME"))
        if attr.type == "shape":
            return tf.TensorShape(self.shape if self._chance(.5) else
                                  [self._dim() for _ in range(self.rng.randint(3))])
        if attr.type == "list(int)":
            if given:
                return list(value.list.i)
            if attr.name in ("ksize", "strides", "dilations", "rates", "ksizes"):
                return [1, int(self.rng.randint(1, 4)), int(self.rng.randint(1, 4)), 1]
            if attr.name == "explicit_paddings":
                return []
            low = 0 if attr.name in ("squeeze_dims",) else -2
            return [int(self.rng.randint(low, 4)) for _ in range(self.rng.randint(4))]
        if attr.type == "list(string)":
            return [self._pick((b"a", b"b")) for _ in range(self.rng.randint(1, 3))]
        if attr.type == "list(float)":
            return [float(self.rng.randint(-3, 4)) for _ in range(self.rng.randint(3))]
        if attr.type == "list(bool)":
            return [self._chance(.5) for _ in range(self.rng.randint(3))]
        if attr.type == "list(shape)":
            return [tf.TensorShape(self.shape) for _ in range(self.rng.randint(1, 3))]
        raise NotImplementedError(attr.type)

    # -- operands

    def inputs(self):
        """[(argument's name, [types])], a list for each argument of several tensors."""
        found = []
        for arg in self.op.input_arg:
            if arg.type_list_attr:
                found.append((arg.name, list(self.attrs[arg.type_list_attr]), True))
            else:
                dtype = self.attrs[arg.type_attr] if arg.type_attr else tf.as_dtype(arg.type)
                count = self.attrs[arg.number_attr] if arg.number_attr else 1
                found.append((arg.name, [dtype] * count, bool(arg.number_attr)))
        return found

    def operands(self):
        """One set of values, in the order of the placeholders of `build`."""
        self._draw_shape()
        return [self._value(name, dtype) for name, types, _ in self.inputs() for dtype in types]

    def _value(self, name, dtype):
        if dtype in (tf.int32, tf.int64) and not self._is_data(name):
            value = self._index(name)
            if value is not None:
                return np.asarray(value, dtype.as_numpy_dtype)
        return self._fill(self._operand_shape(), dtype)

    def _is_data(self, name):
        arg = next(a for a in self.op.input_arg if a.name == name)
        return arg.type_attr in ("T", "dtype", "Tparams", "type", "Tin")

    def _operand_shape(self):
        p, shape = self.rng.uniform(), list(self.shape)
        if p < .62:
            return shape
        if p < .75 and shape:
            shape = [d if self._chance(.6) else 1 for d in shape]
            return shape[self.rng.randint(len(shape)):] if self._chance(.5) else shape
        if p < .84:
            return []
        if p < .9:
            return shape[-1:]
        if p < .95:
            return shape[:-1]
        return [self._dim() for _ in range(self.rng.randint(5))]

    def _index(self, name):
        """What an argument that says where, or how large, may hold."""
        rank, shape = len(self.shape), self.shape
        small = lambda n: self.rng.randint(-1, 5, size=n)  # noqa: E731
        if self._chance(.08):
            return self.rng.randint(-3, 7, size=[self._dim() for _ in range(self.rng.randint(4))])
        low = name.lower()
        if low == "perm":
            return self.rng.permutation(rank)
        if low in ("axis", "reduction_indices", "dim", "concat_dim", "split_dim", "dimension"):
            if low in ("axis", "reduction_indices") and self._chance(.5):
                axes = self.rng.permutation(max(rank, 1))[:self.rng.randint(rank + 1)]
                return [a - rank if self._chance(.5) else a for a in axes]
            return self.rng.randint(-rank, rank + 1) if self._chance(.9) else small([])
        if "segment" in low and "num" not in low:
            n = shape[0] if shape else 1
            return np.sort(self.rng.randint(0 if self._chance(.8) else -2, 4, size=n))
        if low in ("paddings", "crops"):
            return self.rng.randint(0, 3, size=[rank if self._chance(.8) else 2, 2])
        if low in ("begin", "size", "multiples", "end", "shift"):
            return self.rng.randint(-1, 4, size=rank)
        if low == "strides":
            return self._pick((-2, -1, 1, 1, 2)) * np.ones(rank, int)
        if "shape" in low or low in ("dims", "sizes", "input_sizes", "filter_sizes"):
            p = self.rng.uniform()
            if p < .4:
                return shape
            if p < .6:
                return [int(np.prod(shape)) if shape else 1]
            if p < .7:
                return [-1] + shape[1:]
            return self.rng.randint(0, 5, size=self.rng.randint(5))
        if "num" in low or low in ("k", "depth", "limit", "start", "delta", "n", "seed"):
            return self.rng.randint(-1, 6)
        if "indices" in low or "idx" in low:
            p = self.rng.uniform()
            if p < .3:
                return self.rng.randint(0, 3, size=[self._dim(), max(rank, 1)])
            if p < .6:
                return self.rng.randint(0, max(1, shape[0] if shape else 1),
                                        size=[shape[0] if shape else 1])
            return self.rng.randint(-1, 4, size=[self._dim() for _ in range(self.rng.randint(3))])
        p = self.rng.uniform()
        if p < .3:
            return small([])
        return small([rank]) if p < .7 else small(shape)

    def _fill(self, shape, dtype):
        n = int(np.prod(shape)) if shape else 1
        if dtype == tf.string:
            return np.array([self._pick(WORDS) for _ in range(n)], object).reshape(shape)
        if dtype == tf.bool:
            return self.rng.uniform(size=shape) < .5
        p = self.rng.uniform()
        if dtype.is_floating or dtype.is_complex:
            def reals():
                if p < .4:
                    return self.rng.randn(*shape) * self._pick((1., 1., 10., .1))
                if p < .7:
                    return self.rng.randint(-3, 4, size=shape).astype(float)
                return np.array([self._pick(SPECIAL) for _ in range(n)]).reshape(shape)
            value = reals()
            if dtype.is_complex:
                value = value + 1j * reals()
            with np.errstate(all="ignore"):
                return np.asarray(value).astype(dtype.as_numpy_dtype)
        if not dtype.is_integer or dtype.is_quantized:
            raise NotImplementedError(dtype.name)
        low, high = int(dtype.min), int(dtype.max)
        if p < .6:
            value = [self.rng.randint(max(low, -4), 6) for _ in range(n)]
        else:
            value = [self._pick((low, high, 0, 1, max(low, -1), low + 1, high - 1,
                                 int(self.rng.randint(0, 100)))) for _ in range(n)]
        return np.array(value, dtype.as_numpy_dtype).reshape(shape)

    # -- the graph

    def build(self):
        """(graph, placeholders, outputs); raises what TensorFlow raises for such a node."""
        graph = tf.Graph()
        with graph.as_default():
            feeds, arguments = [], {}
            for name, types, several in self.inputs():
                made = [tf.placeholder(t, shape=None) for t in types]
                feeds += made
                arguments[name] = made if several else made[0]
            inferred = {a.type_attr for a in self.op.input_arg}
            inferred |= {a.type_list_attr for a in self.op.input_arg}
            inferred |= {a.number_attr for a in self.op.input_arg}
            attrs = {k: v for k, v in self.attrs.items() if k not in inferred}
            made = getattr(tf.raw_ops, self.op.name)(**arguments, **attrs)
            outputs = [t for t in tf.nest.flatten(made) if isinstance(t, tf.Tensor)]
        return graph, feeds, outputs

    def __str__(self):
        return "%s(%s)" % (self.op.name, ", ".join(
            "%s=%s" % (k, getattr(v, "name", v)) for k, v in sorted(self.attrs.items())))
