"""The migrations make the schema that the code expects."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, text

from starburst.store.engine import MIGRATIONS, open_engine
from starburst.store.schema import HEAD, metadata


def ddl(engine: Engine) -> dict[str, str]:
    made = text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name != 'alembic_version'")
    with engine.connect() as conn:
        return {name: " ".join(sql.split()) for name, sql in conn.execute(made)}


def test_the_migrated_schema_is_the_one_declared(path: Path) -> None:
    engine = open_engine(path)
    with engine.connect() as conn:
        context = MigrationContext.configure(conn, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


@pytest.mark.sqlite
def test_the_migrations_write_the_same_ddl_as_the_declaration(path: Path) -> None:
    migrated, declared = open_engine(path), create_engine("sqlite://")
    metadata.create_all(declared)
    assert ddl(migrated) == ddl(declared)
    migrated.dispose()
    declared.dispose()


def test_head_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]
