"""All schemes that a stream file may name: Tidemark's own, and those that packages register."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union, get_args

from pydantic import Field

from tidemark.schemes.kinds import (
    AvroScheme,
    DelimitedScheme,
    FunctionScheme,
    JsonScheme,
    KeyValueScheme,
    MessageMetadataScheme,
    ProtobufScheme,
    RawScheme,
    RegexScheme,
    SchemePart,
    SchemeType,
    StringScheme,
)
from tidemark.settings.packages import kinds_of_packages, refusing


def _refused(type_: str, why: str) -> SchemeType:
    return SchemeType(refusing(SchemePart, type_, why), "")  # type: ignore[type-abstract]


_BUILT_IN = (
    RegexScheme,
    JsonScheme,
    DelimitedScheme,
    RawScheme,
    StringScheme,
    KeyValueScheme,
    MessageMetadataScheme,
    AvroScheme,
    ProtobufScheme,
    FunctionScheme,
)
GROUP = "tidemark.schemes"
# By type. A package registers its schemes as entry points of the group.
OF_PACKAGES: dict[str, SchemeType] = kinds_of_packages(
    GROUP, SchemeType, SchemePart, _refused, {get_args(one.model_fields["type"].annotation)[0] for one in _BUILT_IN}
)

if TYPE_CHECKING:
    Scheme = SchemePart
else:
    _ALL = (*_BUILT_IN, *(kind.settings for kind in OF_PACKAGES.values()))
    Scheme = Annotated[Union[_ALL], Field(discriminator="type")]  # noqa: UP007
