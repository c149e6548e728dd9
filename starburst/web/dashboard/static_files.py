"""Style sheet, script and icon of the pages; also for the login page, so they need no token."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Query, Response

from starburst.web.dashboard.answers import missing

TYPES = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

router = APIRouter(include_in_schema=False)


@router.get("/dashboard/static/{name}")
def static(name: str, v: str = Query("", max_length=64)) -> Response:
    """A file; for ever with the hash of its content in the address."""
    if name not in TYPES:
        return missing(f"there is no {name}")
    content = (files("starburst.web.dashboard") / "static" / name).read_bytes()
    kept = "public, max-age=31536000, immutable" if v else "no-cache"
    return Response(content, headers={"Cache-Control": kept}, media_type=TYPES[name])
