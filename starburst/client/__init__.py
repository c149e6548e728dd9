"""The Python clients, of a server and of a home, and handles of the jobs that they start."""

from starburst.client.connection import NotFoundError, RefusedError, StarburstError, UnreachableError
from starburst.client.http import Client
from starburst.client.job_handle import JobArray, JobFailedError, JobHandle, NoResultError

__all__ = [
    "Client",
    "JobArray",
    "JobFailedError",
    "JobHandle",
    "NoResultError",
    "NotFoundError",
    "RefusedError",
    "StarburstError",
    "UnreachableError",
]
