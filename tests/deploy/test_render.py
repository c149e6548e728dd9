"""The renderer gives what Helm gives, and refuses what it does not know."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.render import UnknownTemplateError, render

SCOPE: dict[str, Any] = {
    "Values": {
        "on": True,
        "off": False,
        "none": [],
        "names": ["a", "b"],
        "empty": "",
        "zero": 0,
        "text": 'a "b"',
        "box": {"n": 3, "map": {"z": 1, "a": {"k": "v"}}},
    },
    "Release": {"Name": "r", "Namespace": "ns"},
    "APIs": frozenset({"policy/v1"}),
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain: {a: b}\n", "plain: {a: b}\n"),
        ("n: {{ .Values.box.n }}/{{ .Release.Name }}", "n: 3/r"),
        ("a\n  {{- if .Values.on }}\n  b\n  {{- end }}\nc", "a\n  b\nc"),
        ("a\n  {{- if .Values.off }}\n  b\n  {{- end }}\nc", "a\nc"),
        (
            "a{{ if .Values.none }}b{{ end }}{{ if .Values.empty }}c{{ end }}{{ if .Values.zero }}d{{ end }}",
            "a",
        ),
        ("{{ if .Values.off }}{{ if .Values.on }}a{{ end }}b{{ end }}c", "c"),
        ("{{ .Values.box.n -}}\n  a", "3a"),
        ('{{ if .Capabilities.APIVersions.Has "policy/v1" }}a{{ end }}', "a"),
        ('{{ if .Capabilities.APIVersions.Has "policy/v2" }}a{{ end }}', ""),
        ('{{ if eq .Release.Name "r" }}a{{ end }}{{ if eq .Release.Name "s" }}b{{ end }}', "a"),
        ("{{ toYaml .Values.box.map | indent 2 }}\n", "  a:\n    k: v\n  z: 1\n"),
        (
            "{{ toJson .Values.box.map | sha256sum }}",
            "2d0a6257d006b1ade37980fe5f0377878c7ea32ec878eae6cabe6414feef93e9",
        ),
        ("{{ .Values.text | quote }}", '"a \\"b\\""'),
        ("{{ range .Values.names }}[{{ . }}/{{ $.Release.Name }}]{{ end }}", "[a/r][b/r]"),
        ("{{ range .Values.none }}a{{ end }}", ""),
        ("{{ if not .Values.none }}a{{ end }}{{ if not .Values.on }}b{{ end }}", "a"),
    ],
)
def test_what_helm_makes_of_it(template: str, text: str) -> None:
    assert render(template, SCOPE) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ .Values.nothing }}",
        "{{ .Values.box.n.more }}",
        "{{ .Values.box }}",
        "{{ .Values.on }}",
        "{{ if .Values.nothing }}a{{ end }}",
        "{{ . }}",
        "{{ range .Values.names }}{{ .Release.Name }}{{ end }}",
        "{{ range $i, $n := .Values.names }}{{ end }}",
        "{{ .Chart.Name }}",
        "{{ include `x` . }}",
        "{{ .Values.text | upper }}",
        "{{ if .Values.on }}a",
        "a{{ end }}",
        "{{.Values.text}}",
        "{{ if .Values.on }}a{{ else }}b{{ end }}",
        "{{ .Values.text ",
    ],
)
def test_what_is_not_known_is_refused(template: str) -> None:
    with pytest.raises(UnknownTemplateError):
        render(template, SCOPE)
