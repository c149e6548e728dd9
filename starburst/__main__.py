"""`python -m starburst`, for a checkout that is not installed."""

from starburst.cli.main import run

run()
