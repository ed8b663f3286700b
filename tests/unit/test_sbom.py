"""The lists of what the images are made of are valid CycloneDX, and name each package and jar with its hash."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from services.errors import ServiceError
from services.jars import known_sums
from services.sbom import LOCK, jars_as_bom, packages_as_bom

# As Maven writes it.
LISTED = """
The following files have been resolved:
   org.apache.kafka:kafka-clients:jar:{version}:compile -- module kafka.clients (auto)
   org.apache.kafka:kafka-clients:jar:{version}:compile
"""


def valid(text: str) -> list[dict[str, Any]]:
    """The components of a list that is valid by the specification."""
    bom = json.loads(text)
    version = SchemaVersion.from_version(bom["specVersion"])
    assert JsonStrictValidator(version).validate_str(text) is None
    return list(bom["components"])


@pytest.mark.covers("N78")
def test_each_package_of_the_image_is_listed_with_its_hashes() -> None:
    lock = LOCK.read_text()
    components = json.loads(packages_as_bom(lock))["components"]
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.MULTILINE))
    assert {one["name"]: one["version"] for one in components} == pins
    hashes = [found["content"] for one in components for file in one["externalReferences"] for found in file["hashes"]]
    assert sorted(hashes) == sorted(re.findall(r"sha256:(\w+)", lock))
    # The first of them, since the check of a large one takes long.
    valid(packages_as_bom("".join(lock.splitlines(keepends=True)[:20])))


@pytest.mark.covers("N78")
def test_a_jar_is_listed_with_its_hash() -> None:
    name = next(one for one in known_sums() if one.startswith("kafka-clients-"))
    version = name.removeprefix("kafka-clients-").removesuffix(".jar")
    (one,) = valid(jars_as_bom([LISTED.format(version=version)]))
    assert one["purl"] == f"pkg:maven/org.apache.kafka/kafka-clients@{version}"
    assert one["hashes"] == [{"alg": "SHA-256", "content": known_sums()[name]}]


@pytest.mark.covers("N78")
def test_a_jar_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ServiceError, match=r"kafka-clients-0\.0\.0\.jar is among what Maven resolves"):
        jars_as_bom([LISTED.format(version="0.0.0")])
