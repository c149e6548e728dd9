"""Others on the same account: a person with a cluster of their own, and another home of Starburst."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

from starburst.domain.job import is_over
from tests.sky_lab.day.jobs import KINDS, PlannedJob
from tests.sky_lab.deployment import Deployment
from tests.sky_lab.ec2 import REGIONS, ec2, of_cluster

#: What a person's cluster is, which no job of a day asks for.
PERSONS = "c7i.large"
#: Jobs of another home, and beats of each, fifths of a second.
JOBS, BEATS = 2, 100


@dataclass
class Person:
    """A person who launches a cluster that has our prefix and no label of ours, and keeps it."""

    cluster: str
    process: subprocess.Popen[bytes]

    @property
    def came_up(self) -> bool:
        """Whether SkyPilot told the person so."""
        return self.process.poll() == 0

    def leave(self) -> None:
        """The person waits no longer, and gives back what was rented."""
        self.process.kill()
        self.process.wait()
        if left := [id_ for id_, state in of_cluster(self.cluster).items() if state != "terminated"]:
            ec2().terminate_instances(InstanceIds=left)


@dataclass
class OtherHome:
    """Another home with a scheduler, and its jobs by their ids."""

    at: Deployment
    jobs: dict[str, PlannedJob]

    def done(self) -> bool:
        """Whether its jobs are over and it has no machine."""
        over = {row.id for row in self.at.rows() if is_over(row.phase)}
        return self.jobs.keys() <= over and not self.at.alive() and not self.at.records()


@dataclass
class Neighbours:
    """All of them on a day."""

    people: list[Person] = field(default_factory=list)
    homes: list[OtherHome] = field(default_factory=list)

    def person(self, at: Deployment) -> None:
        """A person begins to launch a cluster; nobody waits for it."""
        cluster = f"{at.naming.cluster('debug')}{len(self.people)}"
        words = [
            "launch",
            "-y",
            "-d",
            "-c",
            cluster,
            "--infra",
            f"aws/{REGIONS[0]}",
            "--instance-type",
            PERSONS,
        ]
        with (at.root / "person.log").open("ab") as log:
            process = subprocess.Popen(
                ["sky", *words, "true"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.people.append(Person(cluster, process))

    def home(self, at: Deployment) -> None:
        """Another home begins to work, with some jobs."""
        config = {**at.config, "http": {"enabled": False}}
        other = Deployment(at.root / f"other-{len(self.homes)}", config, wrong=at.wrong)
        jobs = [PlannedJob(f"other-{number}", KINDS[0], 0.0, BEATS, None) for number in range(JOBS)]
        ids = other.submit([job.kind.manifest(job.name, job.beats, job.spot) for job in jobs])
        other.up()
        self.homes.append(OtherHome(other, dict(zip(ids, jobs, strict=True))))

    def supervise(self) -> None:
        """The other schedulers are started again if SkyPilot did not answer when they began."""
        for home in self.homes:
            home.at.supervise(may_refuse=True)

    def alive(self) -> int:
        """Machines of other homes."""
        return sum(len(home.at.alive()) for home in self.homes)

    def done(self) -> bool:
        """Whether the other homes have nothing more to do."""
        return all(home.done() for home in self.homes)

    def wrong(self) -> Iterator[str]:
        """People's clusters that somebody else ended; those that never came up SkyPilot ended itself."""
        for person in self.people:
            states = of_cluster(person.cluster)
            if person.came_up and "running" not in states.values():
                yield f"{person.cluster} is a person's, and was ended: {states}"

    def leave(self) -> None:
        """Nothing of theirs stays."""
        for person in self.people:
            person.leave()
        for home in self.homes:
            home.at.kill()
            if left := home.at.alive():
                ec2().terminate_instances(InstanceIds=sorted(left))
