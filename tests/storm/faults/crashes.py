"""The scheduler dies, its disk fails, its clock is wrong, its config is another one after a restart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starburst.app.config import parse_config
from starburst.store.errors import StoreError
from starburst.store.upkeep.backup import back_up, discard, stage, swap
from tests.storm.known import Known
from tests.storm.loop import of_life
from tests.storm.scenery import drawn_config
from tests.storm.weather import chance, every

if TYPE_CHECKING:
    from tests.storm.run import Storm

chance("crash-before-commit", 0.01, "killed before a step is committed")
chance("crash-after-commit", 0.01, "killed after a step is committed, before its actions begin")
chance("crash-after-write", 0.002, "killed after a transaction of the store, also one that is no step's")
chance("crash-before-done", 0.02, "killed after an action, before it is marked as done")
chance("crash-after-done", 0.02, "killed after an action is marked as done")
chance("crash-before-call", 0.01, "killed before a call that changes something")
chance("crash-after-call", 0.01, "killed after such a call took effect, before its answer")
chance("leader-stopped-before-call", 0.02, "the leader of two schedulers is stopped right before such a call")
chance("disk-full", 0.003, "a write of the store finds the disk full")
chance("disk-error", 0.003, "a write of the store meets an I/O error")
chance("store-locked", 0.003, "another writer holds the store")
chance("fsync-fails", 0.005, "a commit fails")


@every("killed", 3.0, "the scheduler is killed at any moment")
async def killed(storm: Storm) -> bool:
    """It comes back by itself."""
    if not storm.process.is_up:
        return False
    storm.process.kill_leader()
    return True


@every("leader-stopped", 1.0, "there are two schedulers: the leader is stopped for minutes, and wakes up")
async def leader_stopped(storm: Storm) -> bool:
    """As with a virtual machine that is moved; the other one leads meanwhile."""
    life = storm.process.leading
    if not storm.process.is_up:
        return False
    storm.loop.suspend(life)
    await asyncio.sleep(storm.weather.draw("leader-stopped").choice((20.0, 450.0, 900.0)))
    storm.loop.resume(life)
    return True


@every("suspended", 4.0, "the machine of the scheduler sleeps for minutes, and wakes up")
async def suspended(storm: Storm) -> bool:
    """As a laptop does; two schedulers sleep both."""
    lives = storm.process.lives
    if not lives:
        return False
    for life in lives:
        storm.loop.suspend(life)
    await asyncio.sleep(storm.weather.draw("suspended").choice((20.0, 300.0, 1500.0)))
    for life in lives:
        storm.loop.resume(life)
    return True


@every("power-lost", 6.0, "the machine loses its power in the middle of a write: a page of the store is torn")
async def power_lost(storm: Storm) -> bool:
    """What was acknowledged is on the disk."""
    return storm.process.is_up and storm.process.lose_power(storm.users.stores)


@every("killed-in-a-row", 8.0, "the scheduler is killed again and again, seconds after its start")
async def killed_in_a_row(storm: Storm) -> bool:
    """As on a machine that runs out of memory."""
    draw = storm.weather.draw("killed-in-a-row")
    for _ in range(draw.randint(2, 5)):
        storm.process.kill()
        storm.process.start()
        await asyncio.sleep(draw.uniform(0.01, 20.0))
    return True


@every("disk-away", 8.0, "no write of the store or the journal succeeds, for seconds or minutes")
async def disk_away(storm: Storm) -> bool:
    """As with a full disk, or one that fails until it is mounted again."""
    draw = storm.weather.draw("disk-away")
    storm.process.disk_says = draw.choice(("database or disk is full", "disk I/O error"))
    await asyncio.sleep(draw.choice((10.0, 120.0, 900.0)))
    storm.process.disk_says = ""
    return True


@every("cap-lowered", 8.0, "a cap of a dollar an hour is set while jobs and machines are in all states")
async def cap_lowered(storm: Storm) -> bool:
    """With a restart, as every change of the config; an hour later the caps are as before."""
    draw, process = storm.weather.draw("cap-lowered"), storm.process
    then = draw.choice(("stop", "return", "finish"))
    low = parse_config({"caps": [{"usd": 1, "per": "hour", "then": then}]}, "cap-lowered").caps
    before = process.config.caps
    for caps in (low, before):
        if storm.weather.is_calm:
            break
        process.kill()
        process.config = process.config.model_copy(update={"caps": caps})
        process.start()
        await asyncio.sleep(draw.uniform(600, 3600))
    return True


@every("config-changed", 8.0, "the scheduler is started anew with another policy, other caps")
async def config_changed(storm: Storm) -> bool:
    """Its cluster and its cloud stay."""
    draw = storm.weather.draw("config-changed")
    storm.process.kill()
    storm.process.config = drawn_config(draw.randrange(10**6))
    storm.process.start()
    return True


@every("clock-wrong", 8.0, "the machine's clock is up to an hour off, and set right later")
async def clock_wrong(storm: Storm) -> bool:
    """Who is started meanwhile believes it."""
    draw = storm.weather.draw("clock-wrong")
    storm.clock.off_s = draw.choice((-3600.0, -300.0, -5.0, 5.0, 300.0, 3600.0))
    if draw.random() < 0.5:
        storm.process.kill()
        storm.process.start()
    await asyncio.sleep(draw.uniform(60, 3600))
    storm.clock.off_s = 0.0
    return True


@every(
    "clock-drifts", 8.0, "the machine's clock gains or loses up to three seconds a minute, and is set right"
)
async def clock_drifts(storm: Storm) -> bool:
    """Little by little, for up to two hours."""
    draw = storm.weather.draw("clock-drifts")
    gains_s = draw.choice((-1.5, -0.3, 0.3, 1.5))
    for _ in range(draw.randint(10, 240)):
        await asyncio.sleep(30.0)
        storm.clock.off_s += gains_s
    storm.clock.off_s = 0.0
    return True


@every("hint-storm", 6.0, "hints come by the hundred")
async def hint_storm(storm: Storm) -> bool:
    """From heartbeats on the bus."""
    controller = storm.process.controller
    if not storm.process.is_up or controller is None:
        return False
    for _ in range(200):
        of_life(storm.process.leading, controller.cloud.nudge)
        await asyncio.sleep(0.05)
        if not storm.process.is_up:
            break
    return True


@every("broker-away", 3.0, "decisions go to an MQTT broker, which is away, for minutes or hours")
async def broker_away(storm: Storm) -> bool:
    """The log is kept until it is back."""
    storm.broker.up = False
    await asyncio.sleep(storm.weather.draw("broker-away").choice((5.0, 300.0, 3 * 3600.0)))
    storm.broker.up = True
    return True


@every("restored", 10.0, "the store is put back as a backup of minutes or hours before has it")
async def restored(storm: Storm) -> bool:
    """Nobody submits again what is lost; the cluster, the cloud and the home's files are as they are."""
    database = storm.process.home.database
    copy, aside = (database.with_name(name) for name in ("backup.db", "before.db"))
    discard(copy)
    try:
        back_up(database, copy)
    except StoreError:  # nothing is stored yet
        return False
    known = Known(storm)
    await asyncio.sleep(storm.weather.draw("restored").choice((30.0, 900.0, 3 * 3600.0)))
    if storm.weather.is_calm:
        return False
    storm.process.kill()
    storm.process.let_go(storm.users.stores)
    swap(stage(copy, database), database, aside)
    known.is_all()
    return True
