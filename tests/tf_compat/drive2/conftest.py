# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import pytest  # noqa: E402

import harness  # noqa: E402
from harness import duo, five, one, own  # noqa: E402,F401


def pytest_configure(config):
    config.addinivalue_line("markers", "limit(s): seconds this test may take")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs the body in a forked process: a client of its own."""
    args = {name: pyfuncitem.funcargs[name]
            for name in pyfuncitem._fixtureinfo.argnames}
    mark = pyfuncitem.get_closest_marker("limit")
    limit = max(mark.args[0] if mark else 0, harness.TEST_LIMIT_S)
    function = pyfuncitem.obj
    client = harness.Client(lambda talk: function(**args) and None)
    failed = None
    try:
        client.result(limit)
    except harness.ClientFailed as e:
        failed = str(e)
    finally:
        client.kill()
    if failed is not None:
        harness.drop_shared_clusters()
        pytest.fail(failed, pytrace=False)
    return True


def pytest_sessionfinish(session, exitstatus):
    harness.stop_shared_clusters()
