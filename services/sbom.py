"""The contents of the images, as CycloneDX: `python -m services.sbom FOLDER` writes python.cdx.json and jars.cdx.json.

Python packages are those of docker/requirements.lock. Jars are those that Maven resolves for pom.xml.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from services.errors import ServiceError
from services.jars import POM, known_sums
from services.site import REPOSITORY

LOCK = REPOSITORY / "docker" / "requirements.lock"
# A package with its version, and the lines of its hashes.
_PINNED = re.compile(r"^([\w.-]+)==([\w.]+)((?:.*\n(?= ))*.*)", re.MULTILINE)
# Those of services/pom.xml that an image has.
PROFILES = ("kafka", "zookeeper", "hbase", "spark")
# `   org.apache.kafka:kafka_2.13:jar:4.3.1:compile`, or with a classifier before the version.
_RESOLVED = re.compile(r"^ +([\w.-]+):([\w.-]+):jar:(?:([\w.-]+):)?([\w.-]+):(?:compile|runtime)\b", re.MULTILINE)


def resolved(profile: str, file: Path) -> str:
    """Maven's list for a profile."""
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(POM), "--activate-profiles", profile]
    command += ["dependency:list", "-DincludeScope=runtime", f"-DoutputFile={file}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ServiceError(f"Maven could not list the jars for {profile}:\n{(done.stdout + done.stderr)[-2000:]}")
    return file.read_text()


def jars_as_bom(listed: Iterable[str]) -> str:
    """The jars of some lists as CycloneDX in JSON, each once. Raises ServiceError for a jar without a known SHA-256."""
    sums = known_sums()
    bom = Bom()
    for group, name, classifier, version in sorted({one for text in listed for one in _RESOLVED.findall(text)}):
        jar = "-".join(part for part in (name, version, classifier) if part) + ".jar"
        if jar not in sums:
            raise ServiceError(f"{jar} is among what Maven resolves, and jars.sha256 does not name it")
        url = PackageURL("maven", group, name, version, {"classifier": classifier} if classifier else None)
        bom.components.add(
            Component(
                type=ComponentType.LIBRARY,
                group=group,
                name=name,
                version=version,
                purl=url,
                bom_ref=url.to_string(),
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sums[jar])],
            )
        )
    return JsonV1Dot6(bom).output_as_string(indent=2)


def packages_as_bom(lock: str) -> str:
    """The packages of a lock as CycloneDX in JSON. Each has the hashes of all its files, of which one is installed."""
    bom = Bom()
    for name, version, rest in _PINNED.findall(lock):
        url = PackageURL("pypi", None, name, version)
        digests = sorted(re.findall(r"--hash=sha256:(\w+)", rest))
        # Hashes of a component would all be of one file.
        file = ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(url.to_string()),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in digests],
        )
        bom.components.add(
            Component(
                type=ComponentType.LIBRARY,
                name=name,
                version=version,
                purl=url,
                bom_ref=url.to_string(),
                external_references=[file],
            )
        )
    return JsonV1Dot6(bom).output_as_string(indent=2)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "python.cdx.json").write_text(packages_as_bom(LOCK.read_text()))
    listed = [resolved(profile, folder / f"{profile}.txt") for profile in PROFILES]
    (folder / "jars.cdx.json").write_text(jars_as_bom(listed))
    print(f"{folder}: python.cdx.json, jars.cdx.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
