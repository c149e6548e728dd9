"""Plain scalars of the config file: decimal numbers, and the words of YAML 1.1 but `y` and `n`.

A config is not read by kubectl: a node may be named `n`, and neither dates, octal numbers nor base 60 exist.
"""

from __future__ import annotations

import re

import yaml

from translator.manifests.scalars import TAG


class ConfigLoader(yaml.CSafeLoader):
    """A loader whose plain scalars are those of the config."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - an attribute of the base class
        first: [
            (tag, pattern) for tag, pattern in resolvers if tag in (f"{TAG}bool", f"{TAG}null", f"{TAG}merge")
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


ConfigLoader.add_implicit_resolver(
    f"{TAG}int", re.compile(r"^[-+]?(0|[1-9][0-9]{0,18})$"), list("-+0123456789")
)
ConfigLoader.add_implicit_resolver(
    f"{TAG}float",
    re.compile(r"^[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)
