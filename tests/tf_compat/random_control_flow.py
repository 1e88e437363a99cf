# SPDX-License-Identifier: Apache-2.0
"""Random programs of branches, loops and functions with variables, effects and gradients.

A seed decides everything. What a program does is determined: effects and reads come one after
another, each after the one before it, within branches, iterations and functions too. What is
not waited for by any output may run or not: that is TensorFlow's choice, and always the same.
"""
import random

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow import switch_case

STYLES = ("v1", "v1 by reference", "v2", "function")


class Scope:
    """Where nodes are made: the values that can be used, and what ran last."""

    def __init__(self, program, values, last, depth):
        self.program, self.rng = program, program.rng
        self.values, self.last, self.depth = list(values), list(last), depth

    def any(self):
        return self.rng.choice(self.values[-6:])

    def after_last(self):
        return tf.control_dependencies(self.last)

    def attached(self, value):
        """The value, once everything before has happened."""
        with self.after_last():
            return tf.identity(value)

    def steps(self, count):
        for _ in range(count):
            self.step()

    def step(self):
        kinds = [(self.compute, 8), (self.effect, 5), (self.read, 3)]
        if self.depth < 3 and self.program.budget > 0:
            kinds += [(self.cond, 5), (self.loop, 4)]
            if self.program.resources:  # the branches of a switch are functions in every style
                kinds += [(self.switch_case, 2)]
            if self.program.style in ("v2", "function"):
                kinds += [(self.call, 1)]
        self.rng.choices([k for k, _ in kinds], [w for _, w in kinds])[0]()

    def compute(self):
        rng, x, y = self.rng, self.any(), self.any()
        self.values.append(rng.choice([
            lambda: tf.sin(x), lambda: tf.tanh(x), lambda: x * y * .5, lambda: x + y,
            lambda: x - .25, lambda: tf.exp(tf.tanh(x)), lambda: tf.minimum(x, y),
            lambda: tf.where(x > y, x, y * .5), lambda: tf.square(tf.tanh(y)),
            lambda: tf.stop_gradient(x) * y])())

    def effect(self):
        v, x = self.rng.choice(self.program.variables), self.any()
        with self.after_last():
            done = self.rng.choice([
                lambda: tf.assign_add(v, x * .125), lambda: tf.assign(v, tf.tanh(x)),
                lambda: tf.assign_sub(v, tf.constant(.25))])()
        self.last = [done.op]

    def read(self):
        v, c = self.rng.choice(self.program.variables), self.rng.choice([.5, 1., 2.])
        with self.after_last():
            # A reference is read when it is used: at once.
            value = v.read_value() if self.program.resources else tf.multiply(v, c)
        self.last = [value.op]
        self.values.append(value)

    def predicate(self):
        return self.attached(self.any() > self.rng.choice([-.5, 0., .1, .5]))

    def branch(self, results):
        def build():
            inside = Scope(self.program, self.values, [], self.depth + 1)
            inside.steps(self.rng.randint(0, 4))
            outs = []
            for _ in range(results):
                value = inside.any()
                attach = inside.last and self.rng.random() < .7
                outs.append(inside.attached(value) if attach else tf.identity(value))
            return outs
        return build

    def finish(self, outs):
        outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
        self.values.extend(outs)
        self.last = [out.op for out in outs]

    def cond(self):
        self.program.budget -= 1
        results = self.rng.randint(1, 3)
        self.finish(tf.cond(self.predicate(), self.branch(results), self.branch(results)))

    def switch_case(self):
        self.program.budget -= 1
        results = self.rng.randint(1, 2)
        count = self.rng.randint(1, 4)
        index = self.attached(tf.cast(tf.floor(self.any() * 3.), tf.int32))
        branches = [self.branch(results) for _ in range(count)]
        self.finish(switch_case(index, branches))

    def loop(self):
        self.program.budget -= 1
        rng = self.rng
        count, carried = rng.randint(0, 4), rng.randint(0, 2)
        bound = rng.choice([None, 3.])
        array = rng.random() < .25
        start = [self.attached(tf.constant(0)), tf.constant(0)]
        start += [tf.identity(self.any()) for _ in range(carried)]
        if array:
            start.append(tf.TensorArray(tf.float32, size=max(count, 1), element_shape=[],
                                        clear_after_read=False))
        invariant_in_cond = self.any() if rng.random() < .3 else None

        def goes_on(i, _, *state):
            more = i < count
            if bound is not None and carried:
                more = tf.logical_and(more, state[0] < bound)
            if invariant_in_cond is not None:
                more = tf.logical_and(more, invariant_in_cond < 50.)
            return more

        def body(i, turn, *state):
            floats = list(state[:carried])
            values = floats + [tf.cast(i, tf.float32) * .5] + self.values[-3:]
            inside = Scope(self.program, values, [tf.identity(turn).op], self.depth + 1)
            inside.steps(rng.randint(0, 4))
            following = [inside.any() if rng.random() < .8 else self.any()
                         for _ in range(carried)]
            following = [inside.attached(tf.tanh(x)) if rng.random() < .5 else tf.identity(x)
                         for x in following]
            rest = [state[carried].write(i, inside.any())] if array else []
            return [i + 1, inside.attached(turn + 1)] + following + rest

        outs = tf.while_loop(goes_on, body, start,
                             parallel_iterations=rng.choice([1, 10]))
        self.last = [outs[1].op]
        self.values.extend(outs[2:2 + carried])
        if array and count > 0 and bound is None and invariant_in_cond is None:
            self.values.append(tf.reduce_sum(outs[-1].stack()))
        self.values.append(tf.cast(outs[0], tf.float32) * .25)

    def call(self):
        self.program.budget -= 1
        given = [self.attached(self.any()) for _ in range(self.rng.randint(1, 2))]

        def run(*args):
            inside = Scope(self.program, args, [], self.depth + 1)
            inside.steps(self.rng.randint(1, 4))
            return [tf.identity(inside.any()) for _ in range(2)]
        self.finish(tf.function(run, autograph=False)(*given))


class Program:
    """The graph of a seed: `graph`, the operation `init`, and what to run after it, one step
    after the other: `runs`, lists of tensors. `reads` are the values of the variables."""

    def __init__(self, seed):
        self.rng = rng = random.Random("control flow %d" % seed)
        self.style = STYLES[seed % len(STYLES)]
        self.resources = self.style != "v1 by reference"
        self.budget = budget = rng.randint(2, 7)
        if self.style.startswith("v1"):
            tf.disable_control_flow_v2()
        else:
            tf.enable_control_flow_v2()
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.variables = [tf.Variable(float(k + 1), dtype=tf.float32, name="v%d" % k,
                                          use_resource=self.resources) for k in range(3)]
            self.inputs = [
                tf.placeholder_with_default(np.float32(rng.choice([-1., -.3, .2, .7, 1.5])), [],
                                            name="x%d" % k) for k in range(2)]
            self.init = tf.global_variables_initializer()
            self.reads = [tf.identity(v.read_value(), name="read%d" % k)
                          for k, v in enumerate(self.variables)]
            outs = self._outputs()
            self._choose_runs(outs)
        self.constructs = budget - self.budget

    def _outputs(self):
        def build(*inputs):
            scope = Scope(self, inputs, [], 0)
            scope.steps(self.rng.randint(3, 8))
            outs = scope.values[len(inputs):][-4:] or [inputs[0] * 2.]
            return [tf.identity(out) for out in outs]
        if self.style == "function":
            return list(tf.function(build, autograph=False)(*self.inputs))
        return build(*self.inputs)

    def _choose_runs(self, outs):
        rng = self.rng
        grads = []
        for out in outs[-2:]:
            if rng.random() < .6:
                xs = self.inputs + (self.variables if rng.random() < .3 else [])
                grads.append([tf.convert_to_tensor(g) for g in tf.gradients(out, xs)
                              if g is not None])
        self.runs = [[out] for out in rng.sample(outs, min(2, len(outs)))]
        self.runs.append(outs)
        self.runs += [g for g in grads if g]
        if grads and grads[0]:
            self.runs.append(grads[0] + outs)
