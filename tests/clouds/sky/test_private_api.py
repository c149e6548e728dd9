"""The private parts of SkyPilot that are used, in the SkyPilot that is installed.

To import it costs seconds of a processor in each process, so this runs with the tests that do so anyway.
"""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from pathlib import Path

import pytest

from starburst.clouds.sky.access.sdk import load, task_of
from starburst.clouds.sky.agent.autostop import postpone
from starburst.clouds.sky.cloud_facts import (
    CONTAINERS,
    WITHOUT_AUTODOWN,
    WITHOUT_GANGS,
    WITHOUT_MOUNTS,
    WITHOUT_SPOT,
)
from starburst.clouds.sky.gcp_rows import built_in_gpus
from starburst.clouds.sky.machines.launch import launch_spec
from starburst.clouds.sky.offers import OfferFilter, OfferName, offers_of
from starburst.clouds.sky.place_patterns import SKY_CLOUDS
from starburst.clouds.sky.quotas import gcp_quotas
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


def unsupported(cloud: str, resources: object) -> set[str]:
    """The features that SkyPilot has not on a cloud, by their names."""
    from sky.utils import registry

    known = registry.CLOUD_REGISTRY.from_str(cloud)._unsupported_features_for_resources(resources)
    return {feature.name for feature in known}


@pytest.mark.parametrize(
    ("feature", "without"),
    [
        ("STORAGE_MOUNTING", WITHOUT_MOUNTS),
        ("MULTI_NODE", WITHOUT_GANGS),
        ("SPOT_INSTANCE", WITHOUT_SPOT),
        ("AUTODOWN", WITHOUT_AUTODOWN),
    ],
)
def test_what_skypilot_cannot_do_where_is_what_its_clouds_say(feature: str, without: tuple[str, ...]) -> None:
    sky, _ = load()
    assert [cloud for cloud in SKY_CLOUDS if feature in unsupported(cloud, sky.Resources())] == [*without]


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp", "lambda", "runpod", "nebius"])
def test_skypilot_refuses_no_launch_of_an_offer_for_what_its_cloud_cannot_do(cloud: str) -> None:
    """It asks its class of the cloud for what the task needs; what is not offered it would refuse."""
    sky, _ = load()
    from sky import exceptions
    from sky.clouds import CloudImplementationFeatures as Feature
    from sky.utils import registry

    found = registry.CLOUD_REGISTRY.from_str(cloud)
    row = {"InstanceType": "m", "Region": "r", "vCPUs": "1", "MemoryGiB": "1", "Price": "2", "SpotPrice": "1"}
    offers = {offer.spot: offer for offer in offers_of([row], cloud, OfferFilter())}
    for spot, nodes in ((False, 1), (True, 1), (False, 2)):
        place = OfferName(cloud, "r", "", "m", spot)
        config = task_of(launch_spec(place, nodes, 5, None, (), tier="standard"))
        asked = {Feature.AUTODOWN} if config["resources"]["autostop"]["down"] else set()
        asked |= {Feature.MULTI_NODE} if config.get("num_nodes", 1) > 1 else set()
        asked |= {Feature.SPOT_INSTANCE} if config["resources"].get("use_spot") else set()
        offered = spot in offers and not (nodes > 1 and offers[spot].single)
        try:
            found.check_features_are_supported(sky.Resources(cloud=found, use_spot=spot), asked)
            taken = True
        except exceptions.NotSupportedError:
            taken = False
        assert taken is offered, (spot, nodes)


def test_machines_that_are_containers_are_those_of_which_skypilot_sets_the_image() -> None:
    """Its templates of other clouds find or install docker; those of these name a container's image."""
    sky, _ = load()
    templates = Path(sky.__file__).parent / "templates"
    said = "directly set the image id for the docker as runtime"
    texts = {
        path.name.removesuffix("-ray.yml.j2"): path.read_text() for path in templates.glob("*-ray.yml.j2")
    }
    named = {cloud for cloud, text in texts.items() if said in text}
    from sky.clouds import Vast

    assert "vastai/base" in inspect.getsource(Vast)
    assert named | {"vast"} == {*CONTAINERS}


def test_gcp_is_asked_for_quotas_with_skypilots_client_and_project() -> None:
    load()
    from googleapiclient.http import HttpMockSequence
    from sky import clouds
    from sky.adaptors import gcp

    assert inspect.ismethod(clouds.GCP.get_project_id), "of the class"
    body = '{"quotas": [{"metric": "NVIDIA_L4_GPUS", "limit": 3.0, "usage": 0.0}]}'
    http = HttpMockSequence([({"status": "200"}, body)])
    client = gcp.build("compute", "v1", cache_discovery=False, http=http)
    assert gcp_quotas(client, "project", "us-central1") == {"NVIDIA_L4_GPUS": 3.0}
    ((address, method, *_),) = http.request_sequence
    assert address.split("?")[0].endswith("/projects/project/regions/us-central1")
    assert method == "GET"
