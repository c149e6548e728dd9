"""Chakra's metrics for Prometheus, named like those of kube-scheduler (`scheduler_…`)."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

#: kube-scheduler's: 1 ms doubled, 15 times for one cycle, 20 times for a pod's wait (client_golang's
#: ExponentialBuckets(0.001, 2, n)).
ROUND_BUCKETS_S = tuple(0.001 * 2**n for n in range(15))
WAIT_BUCKETS_S = tuple(0.001 * 2**n for n in range(20))


class Metrics:
    """Counters of one scheduler, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        attempts = Counter(
            "chakra_scheduling_attempts",
            "Attempts to schedule pods, by their result.",
            ["result"],
            registry=self.registry,
        )
        # Made at once, so that rates are right from the first attempt on.
        self._scheduled = attempts.labels("scheduled")
        self._unschedulable = attempts.labels("unschedulable")
        self._error = attempts.labels("error")
        self._wait = Histogram(
            "chakra_pod_scheduling_duration_seconds",
            "From the moment a pod was first seen pending until it was bound.",
            buckets=WAIT_BUCKETS_S,
            registry=self.registry,
        )
        self._cycle = Histogram(
            "chakra_scheduling_round_duration_seconds",
            "One round over the pending pods, without the calls that bind them.",
            buckets=ROUND_BUCKETS_S,
            registry=self.registry,
        )
        self._pending = Gauge("chakra_pending_pods", "Pods that wait for a node.", registry=self.registry)
        self._victims = Counter(
            "chakra_preemption_victims", "Pods evicted for others of higher priority.", registry=self.registry
        )
        self._leader = Gauge(
            "chakra_leader", "1 while this replica schedules, 0 while it stands by.", registry=self.registry
        )

    def scheduled(self, latency_s: float) -> None:
        """A pod was bound, so many seconds after it was first seen pending."""
        self._scheduled.inc()
        self._wait.observe(latency_s)

    def unschedulable(self) -> None:
        """A pod fits nowhere."""
        self._unschedulable.inc()

    def bind_error(self) -> None:
        """The API server refused a binding, or did not answer."""
        self._error.inc()

    def preempted(self, count: int) -> None:
        """So many pods were evicted."""
        self._victims.inc(count)

    def pending(self, count: int) -> None:
        """So many pods wait now."""
        self._pending.set(count)

    def cycle_took(self, seconds: float) -> None:
        """A scheduling cycle has ended."""
        self._cycle.observe(seconds)

    def leader(self, flag: bool) -> None:
        """Whether this replica schedules."""
        self._leader.set(int(flag))

    def serve(self, port: int, host: str = "0.0.0.0") -> tuple[int, Callable[[], None]]:
        """Answer `GET /metrics` from a thread; 0 takes any free port.

        Returns:
            The port, and a function that ends it.

        Raises:
            OSError: the port is taken.
        """
        server, thread = start_http_server(port, addr=host, registry=self.registry)

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return server.server_port, close
