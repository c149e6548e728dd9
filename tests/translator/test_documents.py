"""YAML as documents: many in a text, and strict about what YAML lets pass."""

from __future__ import annotations

import json
from typing import cast

import pytest

from tests.translator.manifests import GOOD_JOB, errors, job, read
from translator.errors import ManifestErrors
from translator.intake.texts import read_manifests
from translator.manifests.documents import chunks, load


def values(text: str) -> list[object]:
    return [load(chunk, "f.yaml", 1) for chunk in chunks(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [None]),
        ("# only a comment\n", [None]),
        ("a: 1", [{"a": 1}]),
        ("---\na: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("# head\n---\na: 1\n", [{"a": 1}]),
        ("%YAML 1.1\n---\na: 1\n", [{"a": 1}]),
        ("\ufeff---\r\na: 1\r\n---\r\nb: 2\r\n", [{"a": 1}, {"b": 2}]),
        ("a: 1\n---\n---\n# nothing\n---\nb: 2\n---\n", [{"a": 1}, None, None, {"b": 2}, None]),
        ("a: |\n  text\n  ---\n  more\n", [{"a": "text\n---\nmore\n"}]),
        ("--- {a: 1}\n--- [2]\n", [{"a": 1}, [2]]),
    ],
)
def test_splits_a_text_into_documents(text: str, expected: list[object]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("2024-01-31", "2024-01-31"),
        ("12:30", "12:30"),
        ("0755", 493),
        ("-0755", -493),
        ("0o755", 493),
        ("0O755", 493),
        ("0x1ed", 493),
        ("0X_1ED", 493),
        ("0b11", 3),
        ("-0B11", -3),
        ("007", 7),
        ("08", 8),
        ("00", 0),
        ("0b12", "0b12"),
        ("0o8", "0o8"),
        ("0x", "0x"),
        ("0xfffffffffffffffff", "0xfffffffffffffffff"),
        ("1_000", 1000),
        ("1_", 1),
        ("-_1", -1),
        ("_1", "_1"),
        ("1_0.5_0", 10.5),
        ("18446744073709551615", 2**64 - 1),
        ("=", "="),
        ("9" * 5000, "9" * 5000),
        ("1" * 25, float("1" * 25)),
        ("-3", -3),
        ("+1", 1),
        ("1.5", 1.5),
        ("-.5", -0.5),
        (".5", 0.5),
        ("1.", 1),
        ("-0.0", 0),
        ("1e3", 1000),
        ("1e400", "1e400"),
        ("1e21", 1e21),
        ("0.1.2", "0.1.2"),
        ("5e", "5e"),
        ("..", ".."),
        ("+", "+"),
        ("nan", "nan"),
        ("true", True),
        ("tRUE", "tRUE"),
        ("y", True),
        ("On", True),
        ("n", False),
        ("OFF", False),
        ("yEs", "yEs"),
        ("Null", None),
        ("'0755'", "0755"),
        ("'y'", "y"),
        ("~", None),
        ("'1'", "1"),
        ("!!str 1", "1"),
    ],
)
def test_scalars_are_what_kubectl_takes_them_for(scalar: str, value: object) -> None:
    (found,) = cast("list[list[object]]", values(f"[{scalar}]"))
    assert [(each, type(each)) for each in found] == [(value, type(value))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        (' {"a": 1}{"b": [\n\t2]}', [{"a": 1}, {"b": [2]}]),
        ('{"a": "\\ud83d\\ude00"}', [{"a": "😀"}]),
        ('{"a": "\\\\ud83d\\\\ude00"}', [{"a": "\\ud83d\\ude00"}]),
        ("{a: 1}", [{"a": 1}]),
        ("{a: 1}\n---\n{b: 2}", [{"a": 1}, {"b": 2}]),
        ("a: 1\n---\n\ufeffb: 2\n\ufeff---\nc: 3\n", [{"a": 1}, {"b": 2}, {"c": 3}]),
        ("kind: Job\t# x\nb:\t1\t\n", [{"kind": "Job", "b": 1}]),
    ],
)
def test_reads_what_kubectl_reads(text: str, expected: list[object]) -> None:
    assert values(text) == expected


def test_a_second_json_object_has_its_own_lines() -> None:
    (_, second) = chunks('{"a": 1}\n\n{"b": 1,\n "b": 2}\n')
    with pytest.raises(ManifestErrors, match="line 4, column 2"):
        load(second, "f.json", 2)


def test_anchors_and_merges_work() -> None:
    text = "base: &base {cpu: 1, memory: 2Gi}\nmore: {<<: *base, cpu: 4}\nsame: *base\n"
    base = {"cpu": 1, "memory": "2Gi"}
    assert values(text) == [{"base": base, "more": {"cpu": 4, "memory": "2Gi"}, "same": base}]


def test_nested_merges_that_double_in_size_are_refused() -> None:
    lines = ["a0: &a0 {x: 1}"] + [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}" for i in range(1, 60)]
    with pytest.raises(ManifestErrors, match="aliases stand for more than 20000 values; write them out"):
        values("\n".join(lines))


def test_an_alias_may_repeat_much_in_a_large_document() -> None:
    items = "\n".join(f"- {{name: n{i}, more: [1, 2, 3, 4], template: *t}}" for i in range(2000))
    (found,) = values(f"base: &t [{', '.join('0' * 60)}]\nitems:\n{items}\n")
    assert isinstance(found, dict)
    assert len(found["items"]) == 2000


def test_a_script_that_sbatch_would_take_without_options_is_named() -> None:
    (chunk,) = chunks("#!/bin/bash\npython train.py\n#SBATCH --gres=gpu:1\n")
    with pytest.raises(ManifestErrors, match="starburst submit takes it if #SBATCH lines are at its top"):
        load(chunk, "train.sbatch", 1)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "a: 1\n---\nkind: Job\n  name: x\n",
            "line 4, column 7: mapping values are not allowed in this context; "
            "check the indentation and the quotes there",
        ),
        (
            "a: 1\n---\na:\n\t- b\n",
            "line 4, column 1: found character that cannot start any token; "
            "check the indentation and the quotes there",
        ),
        (
            "a: 1\n---\nimage: x\nname: y\nimage: z\n",
            'line 5, column 1: "image": this key was already given 2 lines above; keep one of the two',
        ),
        (
            "a: 1\n---\n{b: 1, b: 2}\n",
            'line 3, column 8: "b": this key was already given on the same line; keep one of the two',
        ),
        (
            "a: 1\n---\nname: {{ .Values.name }}\n",
            "line 3: a template is no manifest; render it first, as with helm template or jinja2, "
            "and submit the result",
        ),
        (
            "a: 1\n---\nenv:\n{%- for x in y %}\n- a\n{% endfor %}\n",
            "line 4: a template is no manifest; render it first, as with helm template or jinja2, "
            "and submit the result",
        ),
        (
            "a: 1\n---\nname: [{{c: 1}: 1}]\n",
            "line 3, column 9: a key must be text; quote a value that begins with { or [",
        ),
        (
            "a: 1\n---\nb: -.INF\n",
            'line 3, column 4: "-.INF": JSON has no such number; put it in quotes if it is text',
        ),
        (
            "a: 1\n---\nb: &b {c: [*b]}\n",
            "line 3, column 12: the alias 'b' stands for itself; write it out",
        ),
        ("a: 1\n---\n1: x\n", 'line 3, column 1: "1": a key must be text; put it in quotes'),
        (
            "a: 1\n---\na: !!python/name:os.system x\n",
            'line 3, column 4: "tag:yaml.org,2002:python/name:os.system": '
            "tags are not used in manifests; remove it",
        ),
        (
            "a: 1\n---\na: !!int x\n",
            'line 3, column 4: "tag:yaml.org,2002:int": tags are not used in manifests; remove it',
        ),
        (
            'a: 1\n---\na: "x\\0"\n',
            "line 3, column 4: this text holds a character no program can be given; remove it",
        ),
        (
            'a: 1\n---\na: "\\ud800"\n',
            "line 3, column 7: found invalid Unicode character escape code; "
            "check the indentation and the quotes there",
        ),
        ("a: 1\n---\nb: '\ud800'\n", "line 3: this character may not stand in YAML; remove it"),
        ("a: 1\n---\nä: ä\nb: \x07\n", "line 4: this character may not stand in YAML; remove it"),
        ("a: 1\n---\nb: \x07\n", "line 3: this character may not stand in YAML; remove it"),
        (
            "a: 1\n---\na: *gone\n",
            "line 3, column 4: found undefined alias 'gone'; check the indentation and the quotes there",
        ),
        ("a: 1\n---\n" + "[" * 5000, "line 3, column 101: is nested more than 100 levels deep; flatten it"),
    ],
)
def test_says_where_yaml_goes_wrong(text: str, line: str) -> None:
    (_, chunk) = chunks(text)
    with pytest.raises(ManifestErrors) as bad:
        load(chunk, "f.yaml", 2)
    assert str(bad.value) == f"f.yaml, document 2: {line}"


def test_all_duplicate_keys_are_named() -> None:
    with pytest.raises(ManifestErrors) as bad:
        values("a: {x: 1, x: 2}\na: 3\n")
    assert [error.value for error in bad.value.errors] == ["x", "a"]


def test_a_text_without_documents_holds_nothing() -> None:
    assert read_manifests("# nothing here\n---\n---\n", "empty.yaml", suffix=lambda: "a1b2c") == []


def test_a_list_is_its_items() -> None:
    items = [job("metadata/name", name) for name in ("one", "two")]
    found = read({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
    assert [submission.job.name for submission in found] == ["one", "two"]


def test_errors_in_a_list_name_the_item() -> None:
    items = [GOOD_JOB, job("kind", "JobSet"), job("spec/parallelism", 0)]
    assert errors({"apiVersion": "v1", "kind": "List", "items": items}) == [
        'train.yaml, document 1: items[1].apiVersion: "batch/v1": is not that of a JobSet; '
        "write apiVersion: jobset.x-k8s.io/v1alpha2",
        "train.yaml, document 1: items[2].spec.parallelism: 0: must be at least 1",
    ]


def test_notes_stay_with_their_item() -> None:
    items = [GOOD_JOB, job("spec/backoffLimitPerIndex", 3)]
    found = read({"apiVersion": "v1", "kind": "List", "items": items})
    assert [len(submission.notes) for submission in found] == [0, 1]


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"kind": "List", "items": 3}, "items: 3: must be a list; begin each element with a dash"),
        ({"kind": "List", "itms": []}, "itms: is not a field of a List; did you mean items?"),
        (
            {"kind": "List", "items": [{"kind": "List", "items": []}]},
            'items[0].kind: "List": a List in a List is not supported; put its items into the outer one',
        ),
    ],
)
def test_refuses_a_broken_list(document: object, line: str) -> None:
    assert errors(document) == [f"train.yaml, document 1: {line}"]


def test_a_long_line_of_dashes_in_what_is_no_yaml_is_read_once() -> None:
    """It was read anew from each of its dashes, for hours."""
    (line,) = errors(f"a: [\n{'-' * 1_000_000}\n")
    assert "did not find expected" in line


def test_one_bad_document_of_ten_and_none_is_taken() -> None:
    documents = [job("metadata/name", f"job-{i}") for i in range(10)]
    documents[6]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1.5"
    assert errors(*documents) == [
        "train.yaml, document 7: spec.template.spec.containers[0].resources.limits"
        '["nvidia.com/gpu"]: "1.5": a GPU count must be a whole number; write 1 or 2'
    ]


def test_every_bad_document_is_named_also_after_broken_yaml() -> None:
    found = errors("kind: [", job("kind", "Pod"), GOOD_JOB, "", "just text", job("spec/parallelism", 0))
    assert [line.partition(":")[0] for line in found] == [f"train.yaml, document {i}" for i in (1, 2, 5, 6)]


def test_a_long_or_strange_value_stays_on_one_short_line() -> None:
    text = json.dumps(job("metadata/name", "\n\u2028\x1b[31m" + "x" * 500))
    with pytest.raises(ManifestErrors) as bad:
        read_manifests(text, "<stdin>", suffix=lambda: "a1b2c")
    (line,) = str(bad.value).splitlines()
    assert line.startswith('<stdin>, document 1: metadata.name: "\\n\\u2028\\u001b[31mxxx')
    assert len(line) < 250
