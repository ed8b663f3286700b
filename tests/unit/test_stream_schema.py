"""The JSON schema for editors: it takes every form that Tidemark takes, and refuses what no stream file has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from services.site import REPOSITORY
from tests.support.stream_text import MINIMAL
from tidemark.cli.app import app
from tidemark.schemes.kinds import FOLDER
from tidemark.streams.model import Stream

DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
EXAMPLES = [
    *(path.read_text() for path in sorted((REPOSITORY / "dags" / "streams").glob("*.yaml"))),
    *(text for path in DOCUMENTS for text in re.findall(r"```yaml\n(stream:.*?)```", path.read_text(), re.DOTALL)),
]
# Forms that a validator of ours takes apart: an editor knows them too.
FORMS: list[dict[str, Any]] = [
    {"ledger": {"table": "mine"}},
    {"ledger": {"type": "zookeeper", "storm": "/storm"}},
    {"ledger": {"type": "zookeeper", "storm": {"zk_root": "/storm", "id": "x"}}},
    {"ledger": {"type": "sql", "offsets_table": None}},
    {"scheme": {"type": "string", "keep": ["key", "headers"]}},
    {"scheme": {"type": "string", "keep": {"sent": "timestamp"}}},
    {"scheme": {"type": "json", "schema": "id BIGINT"}},
    {"source": {"topics": ["orders"], "start": "2026-11-21T07:00:00Z"}},
    {"source": {"topics": ["orders"], "start": {"time": "2026-11-21T07:00:00Z", "if_none": "end"}}},
    {"source": {"topics": ["orders"], "start": {"offsets": {"orders/0": 3}}}},
    {"sinks": [{"type": "hbase_latest", "table": "t", "folder": "t", "key": "value"}]},
    {"sinks": [{"type": "hbase_aggregates", "table": "t", "folder": "f", "key": "value", "values": {"n": "count"}}]},
    {"dead_letters": {"type": "parquet", "folder": "dead"}},
    {"explode": {"json_array": "items"}},
]


@pytest.fixture(scope="module")
def schema() -> jsonschema.protocols.Validator:
    done = CliRunner().invoke(app, ["streams", "schema"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


@pytest.mark.covers("N73")
@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_are_valid(schema: jsonschema.protocols.Validator, text: str) -> None:
    # In JSON a time is a text.
    values = json.loads(json.dumps(yaml.safe_load(text), default=str))
    assert list(schema.iter_errors(values)) == []


@pytest.mark.covers("N73")
@pytest.mark.parametrize("form", FORMS, ids=json.dumps)
def test_every_form_is_valid(schema: jsonschema.protocols.Validator, form: dict[str, Any], tmp_path: Path) -> None:
    values = {**yaml.safe_load(MINIMAL), "scheme": {"type": "string"}, **form}
    Stream.model_validate(values, context={FOLDER: tmp_path})
    assert list(schema.iter_errors(values)) == []


@pytest.mark.covers("N73")
@pytest.mark.parametrize(
    "wrong",
    [{"sink": []}, {"source": {"topic": "orders"}}, {"source": {"topics": "orders"}}, {"ledger": {"type": "redis"}}],
    ids=json.dumps,
)
def test_what_no_stream_file_has_is_refused(schema: jsonschema.protocols.Validator, wrong: dict[str, Any]) -> None:
    assert list(schema.iter_errors({**yaml.safe_load(MINIMAL), **wrong})) != []
