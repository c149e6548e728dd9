"""The section `store` of starburst.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from sqlalchemy import make_url

from starburst.app.config.fields import Section
from starburst.store.engine import is_postgres


def _url(value: str) -> str:
    if not is_postgres(value):
        raise ValueError("must be a URL such as postgresql://USER@HOST/DATABASE")
    port = make_url(value).port
    if port is not None and not 0 < port < 2**16:
        raise ValueError("its port must be a number from 1 to 65535")
    return value


class StoreConfig(Section):
    """Where jobs, decisions and bills are kept."""

    url: Annotated[str, AfterValidator(_url)] | None = Field(
        None,
        description="a PostgreSQL database, postgresql://USER@HOST/DATABASE; null: STARBURST_STORE, and "
        "without that a SQLite file in the home. A password may stand in a file that ?passfile= names",
    )
