"""Rented machines that do not come, go, are cut off or lie."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from starburst.clouds.sky.machines.naming import Naming
from tests.app.virtual import wall
from tests.storm.model.cloud import offers
from tests.storm.weather import chance, every

if TYPE_CHECKING:
    from tests.clouds.sky.fake_vm import Vm
    from tests.storm.run import Storm

chance("sold-out", 0.1, "the cloud has no such machine")
chance("late-up", 0.05, "a machine comes up half an hour later than others, or more")
chance("never-up", 0.05, "a machine is rented and never comes up")
chance("dies-in-boot", 0.05, "a machine dies while it boots")
chance("setup-fails", 0.05, "a machine is up and billed, and its setup failed")
chance("launch-lies", 0.03, "a launch reports an error although the machine is up")
chance("cloud-forgets", 0.0, "the cloud's own API tells of a machine that has ended for an hour, as EC2 does")
chance("dearer", 0.1, "a machine costs more than its offer said")
chance("answers-nonsense", 0.02, "a machine's agent answers something else")
chance("cannot-look", 0.05, "a machine is short of something, and cannot say how its tasks stand")
chance("down-fails", 0.1, "SkyPilot cannot take a machine down")
chance("switch-fails", 0.1, "a machine's own shutdown switch cannot be set")
chance("ends-by-itself", 0.2, "a task on a machine that is told to stop finishes its work instead")
chance("down-lies", 0.1, "SkyPilot says that a machine is down, and it is not")


def some(storm: Storm, fault: str, *, spot: bool = False) -> Vm | None:
    """A machine that is up."""
    vms = [vm for vm in storm.cloud.alive() if vm.spot or not spot]
    return storm.weather.draw(fault).choice(vms) if vms else None


@every("spot-taken", 1.0, "the cloud takes a spot machine away, also one of several of a gang")
async def spot_taken(storm: Storm) -> bool:
    """Without notice."""
    vm = some(storm, "spot-taken", spot=True)
    if vm is None:
        return False
    storm.cloud.end_vm(vm)
    return True


@every("spot-noticed", 2.0, "the cloud takes a spot machine away, and shuts it down first")
async def spot_noticed(storm: Storm) -> bool:
    """What runs there is ended, and may be asked for that before the machine is gone."""
    vm = some(storm, "spot-noticed", spot=True)
    if vm is None or vm.stopped_at is not None:
        return False
    storm.cloud.shuts_down(vm)
    await asyncio.sleep(storm.weather.draw("spot-noticed").uniform(1.0, 60.0))
    storm.cloud.end_vm(vm)
    return True


@every("rebooted", 4.0, "a machine is booted again")
async def rebooted(storm: Storm) -> bool:
    """What ran there was ended; its disk is as it was."""
    vm = some(storm, "rebooted")
    if vm is None or vm.stopped_at is not None:
        return False
    storm.cloud.shuts_down(vm)
    vm.plugged = False
    await asyncio.sleep(storm.weather.draw("rebooted").uniform(20.0, 240.0))
    vm.plugged = True
    return True


@every("ended-by-hand", 4.0, "somebody ends a machine in the console")
async def ended_by_hand(storm: Storm) -> bool:
    """Any machine."""
    vm = some(storm, "ended-by-hand")
    if vm is None:
        return False
    storm.cloud.end_vm(vm)
    return True


@every("cut-off", 2.0, "a machine is cut off the network, for less and for more than the grace")
async def cut_off(storm: Storm) -> bool:
    """It works on."""
    vm = some(storm, "cut-off")
    if vm is None:
        return False
    vm.plugged = False
    await asyncio.sleep(storm.weather.draw("cut-off").choice((20.0, 200.0, 1000.0, 4000.0)))
    vm.plugged = True
    return True


@every("refuses-work", 6.0, "a machine answers and starts nothing for a while")
async def refuses_work(storm: Storm) -> bool:
    """As with a full disk."""
    vm = some(storm, "refuses-work")
    if vm is None:
        return False
    vm.refuses = "no space left on device"
    await asyncio.sleep(storm.weather.draw("refuses-work").choice((30.0, 600.0)))
    vm.refuses = ""
    return True


@every("machine-clocks", 8.0, "the clocks of rented machines are up to an hour off, and set right later")
async def machine_clocks(storm: Storm) -> bool:
    """All of them, as where they ask a wrong server."""
    draw = storm.weather.draw("machine-clocks")
    storm.cloud.clock_off_s = draw.choice((-3600.0, -60.0, 60.0, 3600.0))
    await asyncio.sleep(draw.uniform(600, 2 * 3600))
    storm.cloud.clock_off_s = 0.0
    return True


@every("others-rent", 4.0, "others have machines on the account, some of them under names like ours")
async def others_rent(storm: Storm) -> bool:
    """A person without our labels, or another home with its own."""
    draw, cloud = storm.weather.draw("others-rent"), storm.cloud
    lasts_s = draw.uniform(600, 4 * 3600)
    mine, other = (Naming("starburst", name) for name in (storm.controller, "another-home"))
    number = draw.getrandbits(20)
    if draw.random() < 0.5:
        vm = cloud.strange(mine.cluster(f"debug-{number}"))
    else:
        vm = cloud.strange(other.cluster(f"gpu1-{number}"))
        vm.labels = other.labels(f"gpu1-{number}", wall(), wall() + lasts_s + 3600)
        cloud.clusters_known[vm.cluster] = replace(cloud.clusters_known[vm.cluster], labels=vm.labels)
    cloud.strangers.append(vm)
    await asyncio.sleep(lasts_s)
    if vm.ended_at is None:
        cloud.strangers.remove(vm)
        cloud.end_vm(vm)
        cloud.clusters_known.pop(vm.cluster, None)
    return True


@every("prices-change", 6.0, "all prices are two or three times as high for hours")
async def prices_change(storm: Storm) -> bool:
    """Offers are read every hour; what is rented costs what was so when it came up."""
    draw = storm.weather.draw("prices-change")
    storm.cloud.prices = draw.choice((2, 3))
    await asyncio.sleep(draw.uniform(1800, 4 * 3600))
    storm.cloud.prices = 1
    return True


@every("sky-away", 4.0, "SkyPilot's API server is down")
async def sky_away(storm: Storm) -> bool:
    """Its requests go on."""
    storm.cloud.server_up = False
    await asyncio.sleep(storm.weather.draw("sky-away").choice((20.0, 600.0, 3 * 3600.0)))
    storm.cloud.server_up = True
    return True


@every("cloud-away", 6.0, "the cloud's own API answers nothing")
async def cloud_away(storm: Storm) -> bool:
    """Machines go on."""
    storm.cloud.falls_silent()
    await asyncio.sleep(storm.weather.draw("cloud-away").choice((20.0, 600.0, 3600.0)))
    storm.cloud.answers()
    return True


@every("stopped-by-hand", 8.0, "somebody stops a machine in the console: its disk is kept")
async def stopped_by_hand(storm: Storm) -> bool:
    """What ran there is dead."""
    vm = some(storm, "stopped-by-hand")
    if vm is None or vm.stopped_at is not None:
        return False
    storm.cloud.settle()
    storm.cloud.stop(vm)
    storm.cloud.settle()
    return True


@every("sky-forgets", 12.0, "SkyPilot's database is lost: it lists nothing that there was")
async def sky_forgets(storm: Storm) -> bool:
    """The instances go on."""
    if not storm.cloud.clusters_known:
        return False
    storm.cloud.lose_state()
    return True


@every("all-dark", 12.0, "SkyPilot's database is lost while cloud and machines are out of reach, for hours")
async def all_dark(storm: Storm) -> bool:
    """As when the place where SkyPilot runs is moved: nobody can say what has become of a machine."""
    vms = storm.cloud.alive()
    if not vms:
        return False
    storm.cloud.lose_state()
    storm.cloud.falls_silent()
    for vm in vms:
        vm.plugged = False
    await asyncio.sleep(storm.weather.draw("all-dark").choice((1200.0, 9000.0, 4 * 3600.0)))
    storm.cloud.answers()
    for vm in vms:
        vm.plugged = True
    return True


@every("tags-lost", 12.0, "the tags of an instance are removed: SkyPilot does not find it")
async def tags_lost(storm: Storm) -> bool:
    """It goes on."""
    vm = some(storm, "tags-lost")
    if vm is None:
        return False
    vm.tagged = False
    return True


@every("offers-gone", 8.0, "half of the offers are withdrawn for hours")
async def offers_gone(storm: Storm) -> bool:
    """They are read every hour."""
    draw = storm.weather.draw("offers-gone")
    storm.cloud.withdrawn = set(draw.sample([offer.name for offer in offers()], 3))
    await asyncio.sleep(draw.uniform(1800, 3 * 3600))
    storm.cloud.withdrawn = set()
    return True
