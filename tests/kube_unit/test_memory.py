"""Thousands of pods in bounded memory."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import weakref
from collections.abc import AsyncIterator
from typing import Any, cast

from starburst.kube.api import PAGE, Api
from starburst.kube.objects import PodView, read_pod
from starburst.kube.reflector import Reflector
from starburst.kube.resources import PODS
from tests.kube_unit.samples import Told, a_pod
from tests.kube_unit.store import Object

COUNT = 2_000


class Page(list[Object]):
    """A list that tells whether it is still kept."""


class Pages:
    """An Api of many pods, which come parsed from text as real ones do, with nothing in common."""

    def __init__(self) -> None:
        self.most_pages = 0
        status = {"phase": "Running", "conditions": [{"type": f"C{i}", "status": "True"} for i in range(4)]}
        tolerations = [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
            for key in ("not-ready", "unreachable")
        ]
        request = {"requests": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}}
        spec = {
            "containers": [{"name": "main", "resources": request}],
            "nodeName": "node-NODE",
            "schedulerName": "chakra",
            "nodeSelector": {"zone": "a"},
            "tolerations": tolerations,
        }
        owner = {"kind": "Job", "name": "train-JOB", "uid": "JOB", "controller": True}
        metadata = {
            "name": "train-NUMBER-abcde",
            "uid": "0f0e0d0c-1111-2222-3333-NUMBER",
            "resourceVersion": "1NUMBER",
            "creationTimestamp": "2026-11-21T15:00:00Z",
            "labels": {"starburst.io/job": "job-JOB", "starburst.io/controller": "c"},
            "annotations": {"starburst.io/attempt": "1"},
            "ownerReferences": [owner],
        }
        pod = a_pod(metadata=metadata, spec=spec, status=status)
        self.text = json.dumps(pod)

    async def pages(self, *_: Any) -> AsyncIterator[tuple[list[Object], str]]:
        """See `Api`."""
        made: list[weakref.ref[Page]] = []
        for first in range(0, COUNT, PAGE):
            page = Page(json.loads(self._text(i)) for i in range(first, first + PAGE))
            made.append(weakref.ref(page))
            self.most_pages = max(self.most_pages, sum(each() is not None for each in made))
            yield page, str(10**18)

    def _text(self, i: int) -> str:
        text = self.text.replace("NUMBER", f"{i:012d}")
        return text.replace("JOB", str(i // 4)).replace("NODE", str(i % 500))


def kept(root: object) -> int:
    """Bytes of all that can be reached, every object once."""
    seen: set[int] = set()
    todo = [root]
    size = 0
    while todo:
        each = todo.pop()
        if id(each) not in seen and not isinstance(each, type):
            seen.add(id(each))
            size += sys.getsizeof(each)
            todo += gc.get_referents(each)
    return size


def test_thousands_of_pods_keep_only_their_small_values() -> None:
    pages = Pages()
    reflector: Reflector[PodView] = Reflector(cast(Api, pages), PODS, read_pod, Told())
    asyncio.run(reflector._list())
    assert len(reflector) == COUNT
    assert kept(reflector._entries) / COUNT < 900
    assert pages.most_pages <= 2
