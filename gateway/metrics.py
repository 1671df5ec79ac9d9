"""Every metric of the gateway."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """A registry of its own, so that several gateways may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "derender_gateway_requests_total",
            "Requests that were answered, by endpoint and status code",
            ("endpoint", "code"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "derender_gateway_request_seconds",
            "Time until the answer began",
            ("endpoint",),
            registry=self.registry,
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
        )
        self.waiting = Gauge(
            "derender_gateway_waiting_requests", "Requests that wait for replies", registry=self.registry
        )
        self.streams = Gauge("derender_gateway_event_streams", "Event streams that are open", registry=self.registry)
        self.events = Counter("derender_gateway_events_total", "Events that were sent", registry=self.registry)
        self.unclaimed = Counter(
            "derender_gateway_unclaimed_replies_total", "Replies nobody waited for any more", registry=self.registry
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)
