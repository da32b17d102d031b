import os
import secrets

import numpy as np
import pytest

import hotrow

SEED = int(os.environ.get("HOTROW_TEST_SEED") or secrets.randbits(32))


def pytest_report_header():
    return f"HOTROW_TEST_SEED={SEED}"


@pytest.fixture
def random():
    return np.random.default_rng(SEED)


@pytest.fixture
def gpu():
    """The name of the device, where there is one."""
    try:
        hotrow.Group([1], 1, device="gpu").close()
    except hotrow.DeviceError as error:
        if os.environ.get("HOTROW_TEST_GPU") == "require":
            raise
        pytest.skip(f"SKIPPED: {error}")
    return "gpu"
