"""The private parts of SkyPilot that are used, in the SkyPilot that is installed."""

from __future__ import annotations

import inspect
from importlib.util import find_spec

import pytest

from starburst.clouds.sky.access.sdk import load

pytestmark = [
    pytest.mark.skipif(find_spec("sky") is None, reason="needs the extra sky"),
    pytest.mark.filterwarnings("ignore"),  # of what SkyPilot imports
]


def test_zones_can_be_named_as_skypilot_names_them() -> None:
    load()
    from sky.catalog import aws_catalog

    assert list(inspect.signature(aws_catalog._fetch_and_apply_az_mapping).parameters) == ["df"]
    assert aws_catalog._apply_az_mapping_lock.acquire(blocking=False)
    aws_catalog._apply_az_mapping_lock.release()


def test_a_listing_has_credentials_and_fields_that_are_read_of_a_cluster() -> None:
    _, sdk = load()
    from sky.backends.cloud_vm_ray_backend import CloudVmRayResourceHandle
    from sky.server import common

    assert "_include_credentials" in inspect.signature(sdk.status).parameters
    assert "retry" in inspect.signature(common.make_authenticated_request).parameters
    for name in ("head_ip", "head_ssh_port"):
        assert isinstance(getattr(CloudVmRayResourceHandle, name), property)
    assert "cached_cluster_info" in inspect.getsource(CloudVmRayResourceHandle.__init__)
