"""`python -m chakra_plugin`."""

from chakra_plugin.main import run

run()
