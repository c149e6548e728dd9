"""The private parts of SkyPilot that are used, in the SkyPilot that is installed.

To import it costs seconds of a processor in each process, so this runs with the tests that do so anyway.
"""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from pathlib import Path

import pytest

from starburst.clouds.sky.access.sdk import load
from starburst.clouds.sky.agent.autostop import postpone
from starburst.clouds.sky.gcp_rows import built_in_gpus
from tests.clouds.sky.test_other_clouds import Provisioner

pytestmark = [
    pytest.mark.sky,
    pytest.mark.skipif(find_spec("sky") is None, reason="needs the extra sky"),
    pytest.mark.filterwarnings("ignore"),  # of what SkyPilot imports
]


def test_zones_can_be_named_as_skypilot_names_them() -> None:
    load()
    from sky.catalog import aws_catalog

    assert list(inspect.signature(aws_catalog._fetch_and_apply_az_mapping).parameters) == ["df"]
    assert aws_catalog._apply_az_mapping_lock.acquire(blocking=False)
    aws_catalog._apply_az_mapping_lock.release()


def test_the_skylet_keeps_the_time_of_the_last_work_where_a_renewal_sets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load()
    from sky.skylet import autostop_lib, configs

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(configs, "_DB_PATH", None)
    autostop_lib.set_last_active_time_to_now()
    postpone(4e9)
    assert autostop_lib.get_last_active_time() == 4e9


def test_a_listing_has_credentials_and_fields_that_are_read_of_a_cluster() -> None:
    _, sdk = load()
    from sky.backends.cloud_vm_ray_backend import CloudVmRayResourceHandle
    from sky.server import common

    assert "_include_credentials" in inspect.signature(sdk.status).parameters
    assert "retry" in inspect.signature(common.make_authenticated_request).parameters
    for name in ("head_ip", "head_ssh_port"):
        assert isinstance(getattr(CloudVmRayResourceHandle, name), property)
    assert "cached_cluster_info" in inspect.getsource(CloudVmRayResourceHandle.__init__)


def test_skypilot_knows_which_machines_of_gcp_have_gpus_built_in() -> None:
    inside = built_in_gpus()
    assert inside("a2-highgpu-1g") == {"A100": 1}
    assert inside("n2-standard-8") is None


def test_the_sdk_says_what_it_launches_by_click_and_a_provisioner_is_called_as_it_is_declared() -> None:
    _, sdk = load()
    from sky import provision

    assert "click.secho('Running on cluster: '" in inspect.getsource(sdk)
    for name in ("query_instances", "terminate_instances"):
        real = inspect.signature(inspect.unwrap(getattr(provision, name)))
        assert list(real.parameters) == list(inspect.signature(getattr(Provisioner(), name)).parameters)
