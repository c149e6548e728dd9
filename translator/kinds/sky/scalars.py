"""Plain scalars of a SkyPilot task, which are other than those of a manifest."""

from __future__ import annotations

from yaml import CSafeLoader, ScalarNode

from translator.manifests.scalars import TAG


class TaskLoader(CSafeLoader):
    """A loader to which plain scalars are what they are to PyYAML, with which SkyPilot reads tasks.

    So 08, y and 1e-4 are text, and 2.0 is no whole number. Dates stay text, as SkyPilot makes of them again.
    """

    def resolve(self, kind: type[object], value: str, implicit: tuple[bool, bool]) -> str:
        """The tag of a node."""
        tag = str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]
        return f"{TAG}str" if tag == f"{TAG}timestamp" else tag

    def number(self, node: ScalarNode) -> object:
        """The number that a node denotes; its text if Python reads none, as with thousands of digits."""
        construct = self.construct_yaml_int if node.tag == f"{TAG}int" else self.construct_yaml_float
        try:
            found: object = construct(node)
        except ValueError:
            return node.value
        return found


TaskLoader.add_constructor(f"{TAG}int", TaskLoader.number)
TaskLoader.add_constructor(f"{TAG}float", TaskLoader.number)
