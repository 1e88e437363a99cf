# SPDX-License-Identifier: Apache-2.0
"""tf.function on remote devices: placement, captures, control flow, gradients."""
from harness import *  # noqa: F401,F403


def test_function_runs_where_it_is_called(duo):
    connect(duo)

    @tf.function
    def f(x, y):
        return tf.matmul(x, y), x + y
    a = np.float32([[1, 2], [3, 4]])
    with tf.device(W0):
        m, s = f(a, a)
    assert (where(m), where(s)) == ("worker/0", "worker/0")
    same(m.numpy(), a @ a)
    same(s.numpy(), a + a)


def test_function_over_three_tasks(duo):
    connect(duo)

    @tf.function
    def f(x):
        with tf.device(P0):
            a = x * 2.0
        with tf.device(W0):
            b = a + 1.0
        with tf.device(W1):
            c = a - 1.0
        with tf.device(P0):
            return a, b, c, b * c
    outs = f(tf.constant([1.0, 2.0]))
    assert [where(t) for t in outs] == ["ps/0", "worker/0", "worker/1", "ps/0"]
    for t, want in zip(outs, ([2, 4], [3, 5], [1, 3], [3, 15])):
        same(t.numpy(), np.float32(want))


def test_function_called_at_the_client_with_remote_parts(duo):
    connect(duo)

    @tf.function
    def f(x):
        y = x + 1.0
        with tf.device(W1):
            z = y * y
        return z - 1.0
    r = f(tf.constant(3.0))
    assert r.numpy() == 15.0


def test_captured_variable_on_ps(duo):
    connect(duo)
    with tf.device(P0):
        v = tf.Variable([1.0, 2.0])

    @tf.function
    def step(x):
        v.assign_add(x)
        return v * 10.0
    with tf.device(W0):
        r = step(tf.constant([1.0, 1.0]))
    same(r.numpy(), np.float32([20, 30]))
    with tf.device(W1):
        r = step(tf.constant([1.0, 1.0]))
    same(r.numpy(), np.float32([30, 40]))
    assert v.device == P0
    same(v.numpy(), np.float32([3, 4]))


def test_captured_tensors_of_two_tasks(duo):
    connect(duo)
    with tf.device(W0):
        a = tf.constant([1.0, 2.0]) + 0.0
    with tf.device(W1):
        b = tf.constant([10.0, 20.0]) + 0.0

    @tf.function
    def f(c):
        return a + b + c
    with tf.device(P0):
        r = f(tf.constant([100.0, 200.0]))
    assert where(r) == "ps/0"
    same(r.numpy(), np.float32([111, 222]))


def test_variable_made_inside_a_function(duo):
    connect(duo)

    class M(tf.Module):
        v = None

        @tf.function
        def __call__(self, x):
            if self.v is None:
                with tf.device(P0):
                    self.v = tf.Variable([1.0, 1.0], name="inside")
            self.v.assign(self.v + x)
            return self.v.read_value()
    m = M()
    with tf.device(W0):
        m(tf.constant([1.0, 2.0]))
        r = m(tf.constant([1.0, 2.0]))
    assert m.v.device == P0
    same(r.numpy(), np.float32([3, 5]))


def test_while_loop(duo):
    connect(duo)

    @tf.function
    def f(n):
        i, s = tf.constant(0), tf.constant(0)
        while i < n:
            s += i * i
            i += 1
        return s, i
    with tf.device(W0):
        s, i = f(tf.constant(100))
    assert (int(s), int(i)) == (328350, 100)
    with tf.device(W1):
        s, i = f(tf.constant(0))
    assert (int(s), int(i)) == (0, 0)


def test_while_loop_with_a_body_on_another_task(duo):
    connect(duo)

    @tf.function
    def f(x):
        for _ in tf.range(5):
            with tf.device(P0):
                x = x * 2.0
            with tf.device(W1):
                x = x + 1.0
        return x
    with tf.device(W0):
        r = f(tf.constant(1.0))
    assert r.numpy() == 63.0


def test_while_loop_over_a_remote_variable(duo):
    connect(duo)
    with tf.device(P0):
        v = tf.Variable(0.0)

    @tf.function
    def f():
        for i in tf.range(10):
            v.assign_add(tf.cast(i, tf.float32))
        return v.read_value()
    with tf.device(W0):
        assert f().numpy() == 45.0


def test_cond_takes_one_branch(duo):
    connect(duo)
    with tf.device(P0):
        a, b = tf.Variable(0), tf.Variable(0)

    @tf.function
    def f(x):
        if x > 0:
            a.assign_add(1)
            r = x + 1
        else:
            b.assign_add(1)
            r = -x
        return r
    with tf.device(W0):
        assert [int(f(tf.constant(i))) for i in (5, -3, 0, 7)] == [6, 3, 0, 8]
    assert (int(a), int(b)) == (2, 2)


def test_cond_with_branches_on_other_tasks(duo):
    connect(duo)

    @tf.function
    def f(p, x):
        def yes():
            with tf.device(P0):
                return x * 2.0

        def no():
            with tf.device(W1):
                return x + 100.0
        return tf.cond(p, yes, no)
    with tf.device(W0):
        assert f(tf.constant(True), tf.constant(1.0)).numpy() == 2.0
        assert f(tf.constant(False), tf.constant(1.0)).numpy() == 101.0


def test_switch_case(duo):
    connect(duo)

    @tf.function
    def f(i, x):
        return tf.switch_case(i, [lambda: x + 1, lambda: x * 10, lambda: -x])
    with tf.device(W1):
        got = [int(f(tf.constant(i), tf.constant(4))) for i in (0, 1, 2, 9)]
    assert got == [5, 40, -4, -4]


def test_break_continue_and_nested_loops(duo):
    connect(duo)

    @tf.function
    def f(n):
        total = 0
        for i in tf.range(n):
            if i % 2 == 0:
                continue
            for j in tf.range(n):
                if j > i:
                    break
                total += j
        return total

    def want(n):
        return sum(j for i in range(1, n, 2) for j in range(i + 1))
    with tf.device(W0):
        assert int(f(tf.constant(8))) == want(8)


def test_nested_functions(duo):
    connect(duo)

    @tf.function
    def inner(x):
        return x * 3.0

    @tf.function
    def middle(x):
        with tf.device(W1):
            return inner(x) + 1.0

    @tf.function
    def outer(x):
        return middle(middle(x)) + inner(x)
    with tf.device(W0):
        r = outer(tf.constant(2.0))
    assert r.numpy() == 22.0 + 6.0


def test_recursion_depth_by_retracing(duo):
    connect(duo)

    @tf.function
    def power(x, n):
        return x if n == 1 else x * power(x, n - 1)
    with tf.device(W0):
        assert power(tf.constant(3.0), 5).numpy() == 243.0


def test_gradient_of_a_remote_variable(duo):
    connect(duo)
    with tf.device(P0):
        w = tf.Variable([[1.0], [2.0]])
    x = np.float32([[1, 2], [3, 4]])
    y = np.float32([[1], [0]])

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.matmul(x, w) - y) ** 2)
        return loss, tape.gradient(loss, w)
    with tf.device(W0):
        loss, grad = step(x, y)
    d = x @ w.numpy() - y
    close(loss.numpy(), (d ** 2).mean())
    close(grad.numpy(), x.T @ (2 * d / 2), 1e-5)


def test_tape_around_a_remote_function(duo):
    """The tape is at the client; forward and backward functions are remote."""
    connect(duo)

    @tf.function
    def f(x, y):
        return tf.sin(x) * y
    x, y = tf.constant([0.5, 1.0]), tf.constant([2.0, 3.0])
    with tf.device(W0):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            z = f(x, y)
        dx, dy = tape.gradient(z, [x, y])
    close(dx.numpy(), np.cos([0.5, 1.0]) * [2, 3])
    close(dy.numpy(), np.sin([0.5, 1.0]))


def test_tape_over_ops_of_several_tasks(duo):
    connect(duo)
    with tf.device(P0):
        v = tf.Variable([1.0, 2.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        with tf.device(W0):
            a = v * v
        with tf.device(W1):
            b = tf.reduce_sum(a * v)
    g = tape.gradient(b, v)
    close(g.numpy(), 3 * np.float32([1, 4, 9]))
    close(tape.gradient(a, v).numpy(), [2, 4, 6])


def test_second_derivative(duo):
    connect(duo)

    @tf.function
    def f(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = x ** 3
            d = inner.gradient(y, x)
        return d, outer.gradient(d, x)
    with tf.device(W1):
        d, dd = f(tf.constant(2.0))
    close([d.numpy(), dd.numpy()], [12.0, 12.0])


def test_gradient_through_while_loop(duo):
    connect(duo)

    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(4):
                y = y * x
        return y, tape.gradient(y, x)
    with tf.device(W0):
        y, g = f(tf.constant(2.0))
    close([y.numpy(), g.numpy()], [32.0, 80.0])


def test_gradient_through_cond(duo):
    connect(duo)

    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x * x if x > 0.0 else -3.0 * x
        return tape.gradient(y, x)
    with tf.device(W0):
        close([f(tf.constant(2.0)).numpy(), f(tf.constant(-1.0)).numpy()],
              [4.0, -3.0])


def test_sparse_gradient_of_a_gather(duo):
    connect(duo)
    with tf.device(P0):
        table = tf.Variable(np.arange(12, dtype=np.float32).reshape(6, 2))

    @tf.function
    def f(ids):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(tf.gather(table, ids) * 2.0)
        g = tape.gradient(y, table)
        return y, g.values, g.indices
    with tf.device(W0):
        y, values, indices = f(tf.constant([1, 4, 1]))
    assert y.numpy() == 2 * (5 + 17 + 5)
    same(values.numpy(), np.full([3, 2], 2, np.float32))
    same(indices.numpy(), np.int32([1, 4, 1]))


def test_custom_gradient(duo):
    connect(duo)

    @tf.custom_gradient
    def clip(x):
        return x, lambda d: tf.clip_by_value(d, -1.0, 1.0)

    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(clip(x) * [5.0, 0.5])
        return tape.gradient(y, x)
    with tf.device(W0):
        same(f(tf.constant([1.0, 1.0])).numpy(), np.float32([1, 0.5]))


def test_tensor_array(duo):
    connect(duo)

    @tf.function
    def f(n):
        ta = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for i in tf.range(n):
            ta = ta.write(i, tf.cast(i * i, tf.float32))
        return ta.stack(), ta.size()
    with tf.device(W1):
        s, n = f(tf.constant(6))
    same(s.numpy(), np.float32([0, 1, 4, 9, 16, 25]))
    assert int(n) == 6


def test_map_fn_scan_and_vectorized(duo):
    connect(duo)

    @tf.function
    def f(x):
        return (tf.map_fn(lambda r: r * 2, x),
                tf.scan(lambda a, r: a + r, x),
                tf.foldl(lambda a, r: a - r, x),
                tf.vectorized_map(lambda r: r * r, x))
    with tf.device(W0):
        m, s, l, v = f(tf.constant([1.0, 2.0, 3.0]))
    same(m.numpy(), np.float32([2, 4, 6]))
    same(s.numpy(), np.float32([1, 3, 6]))
    assert l.numpy() == -4.0
    same(v.numpy(), np.float32([1, 4, 9]))


def test_retracing_for_types_and_shapes(duo):
    connect(duo)
    traces = []

    @tf.function
    def f(x):
        traces.append((x.dtype.name, tuple(x.shape)))
        return x + x
    with tf.device(W0):
        for x in (tf.constant([1, 2]), tf.constant([1.5]),
                  tf.constant([3, 4]), tf.constant([[1, 2]]),
                  tf.constant(["a"])):
            got = f(x)
            assert where(got) == "worker/0"
            same(got.numpy(), (x + x).numpy())
    assert traces == [("int32", (2,)), ("float32", (1,)), ("int32", (1, 2)),
                      ("string", (1,))]


def test_input_signature_of_unknown_shape(duo):
    connect(duo)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
    def f(x):
        return tf.reduce_sum(x, 0), tf.shape(x)
    with tf.device(W1):
        for shape in ((2, 3), (0, 4), (5, 1)):
            s, n = f(tf.ones(shape))
            same(s.numpy(), np.full([shape[1]], shape[0], np.float32))
            same(n.numpy(), np.int32(shape))


def test_strings_through_a_function(duo):
    connect(duo)

    @tf.function
    def f(lines):
        parts = tf.strings.split(lines, ",")
        n = tf.strings.to_number(parts.values, tf.int32)
        with tf.device(P0):
            return tf.strings.reduce_join(parts.values, separator="+"), \
                tf.reduce_sum(n)
    with tf.device(W0):
        s, n = f(tf.constant(["1,2", "3", "4,5,6"]))
    assert s.numpy() == b"1+2+3+4+5+6" and int(n) == 21


def test_stateless_random_in_a_function(duo):
    connect(duo)

    @tf.function
    def f(seed):
        with tf.device(P0):
            a = tf.random.stateless_uniform([4], seed)
        return a, tf.random.stateless_normal([3], seed + 2)
    with tf.device(W0):
        a, b = f(tf.constant([1, 2]))
    close(a.numpy(), [0.84406042, 0.19204533, 0.99622321, 0.16038740])
    close(b.numpy(), [-0.17393383, 1.67235470, 0.34817016])


def test_dropout_is_seeded(duo):
    connect(duo)

    @tf.function
    def f(x):
        return tf.nn.experimental.stateless_dropout(x, 0.5, seed=[7, 7])
    x = tf.ones([8])
    with tf.device(HOME):
        want = f(x).numpy()
    with tf.device(W0):
        got = f(x).numpy()
    same(got, want)
    assert set(got) == {0.0, 2.0}


def test_returned_resource_handle(duo):
    """A variable made by one remote function is used by another."""
    connect(duo)

    @tf.function
    def make(value):
        with tf.device(W0):
            h = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2],
                                       shared_name="made")
            tf.raw_ops.AssignVariableOp(resource=h, value=value)
        return h

    @tf.function
    def use(h):
        with tf.device(W0):
            return tf.raw_ops.ReadVariableOp(resource=h, dtype=tf.float32) * 2
    with tf.device(W0):
        h = make(tf.constant([1.0, 2.0]))
        assert h.dtype == tf.resource and where(h) == "worker/0"
        r = use(h)
    same(r.numpy(), np.float32([2, 4]))


def test_functions_come_and_go(duo):
    """Many functions, each dropped after use; the names are removed again."""
    connect(duo)
    import gc
    for i in range(40):
        f = tf.function(lambda x: x * float(i) + 1.0)
        with tf.device(W0):
            assert f(tf.constant(2.0)).numpy() == 2.0 * i + 1.0
        del f
    gc.collect()
    with tf.device(W0):
        assert tf.add(1, 2).numpy() == 3


def test_removed_function_is_not_found(duo):
    from tensorflow.python.eager import execute
    connect(duo)
    f = tf.function(lambda x: x + 1.0)
    c = f.get_concrete_function(tf.TensorSpec([], tf.float32))
    name = c.function_def.signature.name.encode()
    with tf.device(W0):
        assert f(tf.constant(1.0)).numpy() == 2.0
        out = execute.execute(name, 1, [tf.constant(5.0)], None,
                              tf_context.context())
        assert out[0].numpy() == 6.0
    tf_context.context().remove_function(name)
    with raises(errors.NotFoundError, name.decode()):
        with tf.device(W0):
            execute.execute(name, 1, [tf.constant(5.0)], None,
                            tf_context.context())


def test_big_constant_in_a_function(duo):
    """A 4 MB constant is part of the function's definition."""
    connect(duo)
    big = np.random.RandomState(0).randn(1000, 1000).astype(np.float32)

    @tf.function
    def f(x):
        return tf.linalg.matvec(tf.constant(big), x)
    x = np.ones(1000, np.float32)
    with tf.device(W0):
        np.testing.assert_allclose(f(x).numpy(), big @ x, rtol=1e-3, atol=1e-3)


def test_many_inputs_and_outputs(duo):
    connect(duo)

    @tf.function
    def f(*xs):
        return [x + i for i, x in enumerate(xs)]
    with tf.device(P0):
        xs = [tf.constant([float(i)]) for i in range(60)]
    with tf.device(W0):
        ys = f(*xs)
    same([float(y[0]) for y in ys], np.arange(60) * 2.0)


def test_none_and_nested_structures(duo):
    connect(duo)

    @tf.function
    def f(d):
        return {"a": (d["x"] + 1, None), "b": [d["y"] * 2]}
    with tf.device(W0):
        r = f({"x": tf.constant(1), "y": tf.constant([2, 3])})
    assert int(r["a"][0]) == 2 and r["a"][1] is None
    same(r["b"][0].numpy(), np.int32([4, 6]))


def test_side_effects_keep_the_order_of_the_program(duo):
    connect(duo)
    with tf.device(P0):
        v = tf.Variable(1.0)

    @tf.function
    def f():
        v.assign(v * 2.0)
        v.assign_add(3.0)
        a = v.read_value()
        v.assign(v * a)
        return a, v.read_value()
    with tf.device(W0):
        a, b = f()
    assert (a.numpy(), b.numpy()) == (5.0, 25.0)


def test_function_without_outputs(duo):
    connect(duo)
    with tf.device(P0):
        v = tf.Variable(0)

    @tf.function
    def f():
        v.assign_add(7)
    with tf.device(W1):
        f()
    assert int(v) == 7


def test_error_inside_a_function(duo):
    """The class, the message and the name of the node that failed."""
    connect(duo)

    @tf.function
    def f(x):
        with tf.device(P0):
            y = tf.debugging.check_numerics(x, "found one", name="my_check")
        return y + 1.0
    with tf.device(W0):
        assert f(tf.constant(1.0)).numpy() == 2.0
        with raises(errors.InvalidArgumentError, "found one", "my_check"):
            f(tf.constant(np.nan, tf.float32)).numpy()
        assert f(tf.constant(2.0)).numpy() == 3.0


def test_assertion_inside_a_function(duo):
    connect(duo)

    @tf.function
    def f(x):
        tf.debugging.assert_less(x, 10, message="too large")
        return x + 1
    with tf.device(W0):
        assert f(tf.constant(1)).numpy() == 2
        with raises(errors.InvalidArgumentError, "too large"):
            f(tf.constant(11)).numpy()


def test_unknown_device_in_a_function(duo):
    connect(duo)

    @tf.function
    def f(x):
        with tf.device("/job:worker/replica:0/task:9/device:CPU:0"):
            return x + 1
    tf.config.set_soft_device_placement(False)
    with raises(errors.InvalidArgumentError, "task:9"):
        with tf.device(W0):
            f(tf.constant(1)).numpy()


def test_concurrent_calls_from_threads(duo):
    import threading
    connect(duo)
    with tf.device(P0):
        v = tf.Variable(0)

    @tf.function
    def f(x):
        v.assign_add(1)
        return x * x
    got = {}

    def run(k, device):
        with tf.device(device):
            got[k] = [int(f(tf.constant(i))) for i in range(k, k + 10)]
    with tf.device(W0):
        f(tf.constant(0))
    threads = [threading.Thread(target=run, args=(k, d)) for k, d in
               ((0, W0), (100, W1), (200, W0), (300, W1))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in (0, 100, 200, 300):
        assert got[k] == [i * i for i in range(k, k + 10)]
    assert int(v) == 41


def test_cancelled_function_call(duo):
    """A call in a cancellation scope ends with CancelledError."""
    import threading
    from tensorflow.python.eager import cancellation
    # One call at a time, as ParameterServerStrategy does it.
    os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] = "False"
    connect(duo)

    @tf.function
    def slow(x):
        while x < 1e9:
            x += 1e-9
        return x
    manager = cancellation.CancellationManager()
    concrete = slow.get_concrete_function(tf.TensorSpec([], tf.float64))
    timer = threading.Timer(1.0, manager.start_cancel)
    timer.start()
    with raises(errors.CancelledError):
        with tf.device(W0):
            manager.get_cancelable_function(concrete)(
                tf.constant(0.0, tf.float64)).numpy()
    with tf.device(W0):
        assert tf.add(1, 2).numpy() == 3


def test_wrapped_graph_function(duo):
    connect(duo)

    def g(x):
        return tf.compat.v1.square(x) + 1.0
    f = tf.compat.v1.wrap_function(g, [tf.TensorSpec([2], tf.float32)])
    with tf.device(W1):
        same(f(tf.constant([2.0, 3.0])).numpy(), np.float32([5, 10]))


def test_packed_variable_of_two_workers(duo):
    """A packed handle: each task of the function uses its own variable."""
    from tensorflow.python.distribute import packed_distributed_variable
    connect(duo)
    with tf.device(W0):
        a = tf.Variable([1.0, 2.0])
    with tf.device(W1):
        b = tf.Variable([10.0, 20.0])
    p = packed_distributed_variable.PackedDistributedVariable([a, b])

    @tf.function
    def both():
        with tf.device(W0):
            x = p.read_value()
        with tf.device(W1):
            y = p.read_value()
        with tf.device(P0):
            return x + y

    @tf.function
    def add():
        for d in (W0, W1):
            with tf.device(d):
                p.assign_add([0.5, 0.5])
    same(both().numpy(), np.float32([11, 22]))
    with tf.device(W1):
        add()
    same(a.numpy(), np.float32([1.5, 2.5]))
    same(b.numpy(), np.float32([10.5, 20.5]))
    with tf.device(P0):
        same(both().numpy(), np.float32([12, 23]))
