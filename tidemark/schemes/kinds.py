"""The keys of schemes in a stream file: how the bytes of a message become the fields of a row.

Each scheme says which fields it makes itself (`own_fields`). `fields` are all fields, in the order of digests: the
scheme's own, then the parts of the message that `keep` names.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from tidemark.clients.registry_answers import RefusedSchema
from tidemark.schemes.avro_schema import record_fields, schema_text
from tidemark.schemes.java_regex import groups_of
from tidemark.schemes.protobuf_schema import message_of, normal, problem_with
from tidemark.schemes.time_forms import TimeForms
from tidemark.settings.parts import A_FIELD_NAME, ConnectionName, FieldName, FileName, FunctionName, Items, Part, form
from tidemark.types.ddl import Member, Type, schema_of
from tidemark.types.fields import NESTED, FieldType, has_variant, is_nested, text_of, type_of

Fields = dict[str, FieldType]

# The name that a message has for a field, of those fields for which it is another.
SourceName = Annotated[str, Field(min_length=1, max_length=1_000)]


class NamedSource(Part):
    """The type of a field, and the name that messages have for it."""

    type: FieldType
    source: SourceName = Field(alias="from", description="The name in the message.")


# What a stream file may have for a type under `fields`, for its schema.
SourcesToo = BeforeValidator(lambda given: given, json_schema_input_type=dict[FieldName, FieldType | NamedSource])


def _types_alone(given: object) -> tuple[object, dict[str, str]]:
    """`fields` of a scheme with their types alone, and the names that messages have for some of them."""
    fields = given.get("fields") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(fields, dict):
        return given, {}
    types, sources = dict(fields), {}
    for name, one in fields.items():
        if isinstance(one, dict):
            try:
                found = NamedSource.model_validate(one)
            except ValidationError:
                expected = "a type, or both of {type: a type, from: a name in the message}"
                raise ValueError(f"fields.{name}: expected {expected}, found {one}") from None
            types[name], sources[name] = found.type, found.source
    return {**given, "fields": types}, sources


def _flat(kind: FieldType) -> FieldType:
    if is_nested(kind):
        raise ValueError(f"a text has no {type_of(kind).name}; expected a flat type, or `string` for the text itself")
    return kind


# The types that a text between separators can be converted to.
TextType = Annotated[FieldType, AfterValidator(_flat)]

MessagePart = Literal["key", "value", "headers", "timestamp", "timestamp_type"]
_PARTS: Mapping[MessagePart, FieldType] = {
    "key": "binary",
    "value": "binary",
    "headers": "string",
    "timestamp": "timestamp",
    "timestamp_type": "string",
}


def _by_name(given: object) -> object:
    """A list keeps each part under its own name."""
    if isinstance(given, list) and all(isinstance(one, str) for one in given):
        if len(set(given)) < len(given):
            raise ValueError("a part is named twice")
        return {one: one for one in given}
    return given


class SchemePart(Part):
    """The base of all schemes: `keep`, parts of the message in addition to the scheme's own fields, by their field's name."""

    # Why a field cannot have another name in the message; empty where it can.
    names_are_fixed: ClassVar[str] = "it has no names of its own for its fields"

    type: str
    _sources: Mapping[str, str] = PrivateAttr(default_factory=dict)
    keep: Annotated[
        dict[FieldName, MessagePart],
        BeforeValidator(_by_name, json_schema_input_type=dict[FieldName, MessagePart] | list[MessagePart]),
    ] = Field(default_factory=dict, description="[Parts of the message](schemes.md#keep) as fields of their own.")

    @property
    def fields(self) -> Fields:
        """All fields of a row and their types, in order."""
        return {**self.own_fields(), **{name: _PARTS[part] for name, part in self.keep.items()}}

    @abstractmethod
    def own_fields(self) -> Fields:
        """The fields that the scheme itself makes of a message."""

    def source_of(self, name: str) -> str:
        """The name that messages have for a field."""
        return self._sources.get(name, name)

    def by_source(self, fields: Fields) -> Fields:
        """Fields by the names that messages have for them."""
        return {self.source_of(name): kind for name, kind in fields.items()}

    def check_names(self, info: ValidationInfo) -> None:
        """Check what depends on the names in messages. Raises ValueError."""

    @model_validator(mode="wrap")
    @classmethod
    def _with_sources(cls, given: object, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        types, sources = _types_alone(given)
        named = types["fields"] if sources and isinstance(types, dict) else ()
        made = handler(types)
        if sources and cls.names_are_fixed:
            raise ValueError(
                f"fields.{next(iter(sources))}: `from` is not for the scheme {made.type}: {cls.names_are_fixed}"
            )
        if sources:
            made._sources = sources  # noqa: SLF001 - its own, which it was made with
            twice = [one for one, number in Counter(map(made.source_of, named)).items() if number > 1]
            if twice:
                raise ValueError(f"fields: two of them come from {twice[0]!r}; a transform can use one twice")
        made.check_names(info)
        return made

    @model_validator(mode="after")
    def _named_once(self) -> SchemePart:
        named_once([*self.own_fields(), *self.keep])
        return self


def named_once(names: Iterable[str]) -> None:
    """Raises ValueError when two fields have one name."""
    # Spark takes `id` and `ID` for the same column.
    counts = Counter(name.lower() for name in names)
    twice = [name for name, number in counts.items() if number > 1]
    if twice:
        raise ValueError(
            f"more than one field is named {twice[0]!r} (in whatever case); give each its own name, as "
            f"{twice[0]}_2: {{type: string, from: the name in the message}} where the scheme takes names by `from`"
        )


TextFields = Annotated[
    dict[FieldName, TextType],
    Field(
        min_length=1,
        alias="fields",
        description="Names and types, without arrays, maps and structs; the order is kept.",
    ),
]


class NamedFields(SchemePart):
    """A scheme whose stream file names the fields, under `fields`."""

    names_are_fixed = "its fields are in the order of the line"

    named: TextFields
    nulls: Items[Annotated[str, Field(min_length=1)]] = Field(
        default=(),
        alias="null",
        description='Texts that are null wherever a field is one of them, as in `["-", "\\\\N"]`.',
    )

    def own_fields(self) -> Fields:
        return {**self.named}


def _java_regex(text: str) -> str:
    """Check a regex in Java's syntax, as far as its groups. Java checks the rest when it compiles it."""
    for name in groups_of(text):
        if name is not None and not re.fullmatch("[A-Za-z][A-Za-z0-9]*", name):
            raise ValueError(f"Java has only letters and digits in the names of groups, and one is named {name!r}")
    return text


Regex = Annotated[str, AfterValidator(_java_regex)]


def _named(regex: str) -> tuple[str, ...]:
    return tuple(name for name in groups_of(regex) if name is not None)


class Pattern(Part):
    """One form that a line may have: its groups are the named fields, by their names or in order."""

    name: Annotated[FieldName, Field(description="For error messages.")]
    regex: Annotated[
        Regex,
        Field(
            description="Java's syntax; as many groups as fields. Groups with names, `(?<host>\\S+)`, give the fields of these "
            "names."
        ),
    ]
    fields: Items[FieldName] = Field(
        default=(),
        description="The field of each group, in the order of the groups; each pattern gives all fields. A group that does "
        "not match gives null. Not needed with named groups, and refused if it contradicts them. Java "
        "allows only letters and digits in such names, so a "
        "field `status_code` needs a group without a name, and this list.",
    )
    timestamp: TimeForms | None = Field(
        default=None,
        description="The form of its times, as one of [Spark's datetime patterns]"
        "(https://spark.apache.org/docs/4.2.0/sql-ref-datetime-pattern.html) or a list, of which the first match counts. "
        "Needed if a field is a timestamp.",
    )

    @property
    def groups(self) -> tuple[str, ...]:
        """The field of each group, in order."""
        return self.fields or _named(self.regex)

    @model_validator(mode="after")
    def _as_many(self) -> Pattern:
        number, named = len(groups_of(self.regex)), _named(self.regex)
        if named and len(named) < number:
            raise ValueError(
                f"pattern {self.name}: {number - len(named)} of its {number} groups have no name; name "
                "all, or none, or write `(?:` for one that is no field"
            )
        if named and self.fields and self.fields != named:
            raise ValueError(
                f"pattern {self.name}: its groups are named {', '.join(named)}, and `fields` says {', '.join(self.fields)}"
            )
        if number != len(self.groups):
            raise ValueError(f"the regex has {number} groups, and {len(self.fields)} fields are named")
        if not self.groups:
            raise ValueError(f"pattern {self.name}: the regex has no groups, and each is a field")
        return self


class RegexScheme(NamedFields):
    """UTF-8 text that matches one of several patterns; the first that matches gives the fields."""

    names_are_fixed = ""

    type: Literal["regex"]
    patterns: Annotated[Items[Pattern], Field(min_length=1, description="The forms of a line, tried in this order.")]
    max_line_bytes: Annotated[int, Field(ge=1, le=2_147_483_647, description="Longer lines are invalid.")] = (
        16 * 1024 * 1024
    )
    max_match_ms: Annotated[
        int,
        Field(
            ge=1,
            le=600_000,
            description="The limit for one pattern on one line: 1 ms is 100,000 character reads.",
        ),
    ] = 1_000

    def groups_of(self, pattern: Pattern) -> tuple[str, ...]:
        """The field of each group of a pattern. A group may have the name that `from` says."""
        fields = {self.source_of(name): name for name in self.named}
        return tuple(fields.get(group, group) for group in pattern.groups)

    def check_names(self, info: ValidationInfo) -> None:
        for pattern in self.patterns:
            groups = self.groups_of(pattern)
            if set(groups) != set(self.named) or len(groups) != len(self.named):
                missing = sorted(set(self.named) ^ set(groups))
                raise ValueError(
                    f"pattern {pattern.name} and `fields` do not name the same fields once each: {missing}"
                )
            if "timestamp" in self.named.values() and pattern.timestamp is None:
                raise ValueError(f"pattern {pattern.name} needs `timestamp`, the form of its times")


# What `schema` has always stored in a wider type. A field of `fields` has the type that it names.
_WIDENED = {**dict.fromkeys(("tinyint", "smallint", "int"), "bigint"), "float": "double"}
_TEXTS = frozenset({"decimal", "date", "timestamp_ntz", *NESTED})
_FIELD_NAME: TypeAdapter[str] = TypeAdapter(FieldName)


def _known_schema(ddl: str) -> str:
    for one in schema_of(ddl):
        try:
            _FIELD_NAME.validate_python(one.name)
        except ValidationError:
            raise ValueError(
                f"{one.name!r} cannot be the name of a field, or is one of Tidemark's own: expected {A_FIELD_NAME}"
            ) from None
    return ddl


# The field for keys that the stream file does not name.
UNKNOWN = "unknown"


class JsonScheme(SchemePart):
    """A JSON object a message; keys that are not named are passed over or kept, a value of another type is invalid."""

    names_are_fixed = ""

    type: Literal["json"]
    given: Annotated[
        dict[FieldName, FieldType] | None,
        SourcesToo,
        Field(
            min_length=1,
            alias="fields",
            description="The names of the fields and their types, or [their types and keys](schemes.md#other-names).",
        ),
    ] = None
    ddl: Annotated[
        Annotated[str, AfterValidator(_known_schema)] | None,
        Field(alias="schema", description="Instead of `fields`: types in [Spark's DDL](#a-schema-instead-of-fields)."),
    ] = None
    unknown: Literal["drop", "keep", "fail"] = Field(
        default="drop",
        description="How to handle unnamed keys: ignored, or kept in a field `unknown`; `fail`: they make the "
        "message invalid.",
    )
    as_text: Items[FieldName] = Field(
        default=(),
        description="Fields whose decimal, date, `timestamp_ntz`, array, map or struct is validated, and then stored as "
        "text, as in earlier versions.",
    )
    timestamp: TimeForms | None = Field(
        default=None,
        description="How times are written, as [Spark's datetime patterns]"
        "(https://spark.apache.org/docs/4.2.0/sql-ref-datetime-pattern.html) say, a form or a list of forms; ISO 8601 unless "
        "it is given.",
    )
    wire_format: Literal["confluent"] | None = Field(
        default=None,
        description="`confluent`: each value begins with a byte 0 and the number of its JSON schema in four bytes: "
        "[below](#json-by-a-schema-registry).",
    )

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the named fields."""
        return tuple(self.source_of(one.name) for one in self.columns)

    @property
    def columns(self) -> tuple[Member, ...]:
        """The named fields, with the types of Spark's DDL."""
        if self.ddl is not None:
            return schema_of(self.ddl)
        return tuple(Member(name, type_of(kind)) for name, kind in (self.given or {}).items())

    def own_fields(self) -> Fields:
        named = {one.name: text_of(self.stored(one)) for one in self.columns}
        return {**named, UNKNOWN: "string"} if self.unknown == "keep" else named

    def stored(self, column: Member) -> Type:
        """The type that a field is stored in."""
        if column.name in self.as_text or has_variant(column.type):
            return Type("string")
        wider = _WIDENED.get(column.type.name) if self.ddl is not None else None
        return column.type if wider is None else Type(wider)

    @model_validator(mode="after")
    def _one_way(self) -> JsonScheme:
        if (self.given is None) == (self.ddl is None):
            raise ValueError("expected one of fields and schema, like `schema: id BIGINT, tags ARRAY<STRING>`")
        return self

    @model_validator(mode="after")
    def _texts_of_others(self) -> JsonScheme:
        kinds = {one.name: one.type.name for one in self.columns}
        for name in self.as_text:
            if name not in kinds:
                raise ValueError(f"as_text: the field {name} is not named in `fields` or `schema`")
            if kinds[name] not in _TEXTS:
                raise ValueError(
                    f"as_text: {name} is of type {kinds[name]}; expected one of {', '.join(sorted(_TEXTS))}"
                )
        return self

    @model_validator(mode="after")
    def _unknown_is_free(self) -> JsonScheme:
        if self.unknown == "keep" and any(one.name == UNKNOWN for one in self.columns):
            raise ValueError(f"`unknown: keep` makes a field {UNKNOWN!r}, and `fields` or `schema` names one too")
        return self


class DelimitedScheme(NamedFields):
    """UTF-8 text with a separator between its fields, which are given in their order."""

    type: Literal["delimited"]
    separator: Annotated[str, Field(min_length=1, max_length=20, description="One or more characters.")] = ","
    quote: Annotated[str, Field(min_length=1, max_length=1)] | None = Field(
        default='"',
        description="May enclose a field, which may then contain separators, line ends, and doubled quotes. Quotes anywhere "
        "else are invalid. `null`: a quote is an ordinary character.",
    )
    timestamp: TimeForms | None = Field(
        default=None, description="The form of times, as for `regex`. Needed if a field is a timestamp."
    )

    @model_validator(mode="after")
    def _readable(self) -> DelimitedScheme:
        if self.quote is not None and self.quote in self.separator:
            raise ValueError(f"the separator holds the quote {self.quote!r}; `quote: null` if nothing is quoted")
        if "timestamp" in self.named.values() and self.timestamp is None:
            raise ValueError("a field is a timestamp: `timestamp` has to say the form of its times")
        return self


class RawScheme(SchemePart):
    """The bytes of key and value, whatever they are."""

    type: Literal["raw"]

    def own_fields(self) -> Fields:
        return {"key": "binary", "value": "binary"}


class StringScheme(SchemePart):
    """The value as UTF-8 text."""

    type: Literal["string"]

    def own_fields(self) -> Fields:
        return {"value": "string"}


class KeyValueScheme(SchemePart):
    """Key and value as UTF-8 text; the key may be null."""

    type: Literal["key_value"]

    def own_fields(self) -> Fields:
        return {"key": "string", "value": "string"}


class MessageMetadataScheme(SchemePart):
    """Where and when the message is, in place of what it says."""

    type: Literal["message_metadata"]

    def own_fields(self) -> Fields:
        return {"topic": "string", "partition": "integer", "offset": "integer", "timestamp": "timestamp"}


# The key, in the context of the validation, for the folder of the stream file.
FOLDER = "folder"


class SchemeWithSchemas(SchemePart):
    """A scheme whose messages were written with schemas: all with that in a file, or each with one of a registry."""

    names_are_fixed = ""

    given: Annotated[dict[FieldName, FieldType], SourcesToo, Field(min_length=1, alias="fields")]
    schema_file: FileName | None = None
    registry: ConnectionName | None = None
    _writer: str = PrivateAttr("")
    _writers: Mapping[int, str | RefusedSchema | None] | None = PrivateAttr(None)

    def own_fields(self) -> Fields:
        return {**self.given}

    @property
    def writer(self) -> str:
        """The schema in the file, as text; empty with a registry."""
        return self._writer

    @property
    def writers(self) -> Mapping[int, str | RefusedSchema | None]:
        """The registry's schemas that are known so far, by number; None for a schema that the registry lacks."""
        return self._writers or {}

    @property
    def asked(self) -> bool:
        """Whether the registry has been asked."""
        return self._writers is not None

    def with_writers(self, writers: Mapping[int, str | RefusedSchema | None]) -> Self:
        copied = self.model_copy()
        copied._writers = dict(writers)  # noqa: SLF001 - its own, of a copy
        return copied

    @abstractmethod
    def read_file(self, path: Path) -> str:
        """The schema in a file, as text. Raises ValueError if it is none, or does not have the fields."""

    def check_names(self, info: ValidationInfo) -> None:
        if (self.schema_file is None) == (self.registry is None):
            raise ValueError("expected one of schema_file and registry")
        if self.schema_file is not None:
            folder = (info.context or {}).get(FOLDER)
            if folder is None:
                raise ValueError("a schema file is looked for next to the stream file, and there is no stream file")
            self._writer = self.read_file(Path(folder) / self.schema_file)


class AvroScheme(SchemeWithSchemas):
    """One Avro record a message: written with the schema in a file, or with one that the message names in a registry."""

    type: Literal["avro"]
    given: Annotated[
        dict[FieldName, FieldType],
        SourcesToo,
        Field(
            min_length=1,
            alias="fields",
            description="Fields of the record by name ([or another](schemes.md#other-names)), which the schema must have "
            "in that type. `string` is Avro's string or "
            "enum, `integer` int or long, `double` float or double, `timestamp` timestamp-millis or -micros, `binary` bytes or "
            "fixed; [the others](schemes.md#types) are as Avro names them; each may be a union with null. Other fields of "
            "the record may have any type, and are ignored.",
        ),
    ]
    schema_file: FileName | None = Field(
        default=None,
        description="The schema of all messages, as JSON, next to the stream file. A field that the schema lacks, or has in "
        "another type, is refused with code 2. The digest in receipts covers both files.",
    )
    registry: ConnectionName | None = Field(
        default=None,
        description="A connection. Each message begins with a byte 0 and the number of its schema in four bytes (Confluent's "
        "wire format).",
    )

    def read_file(self, path: Path) -> str:
        writer = schema_text(path)
        if missing := [name for name in self.by_source(self.given) if name not in record_fields(writer)]:
            known = ", ".join(record_fields(writer))
            raise ValueError(f"fields: {self.schema_file} has no field {missing[0]}; it has {known}")
        return writer


class ProtobufScheme(SchemeWithSchemas):
    """One message of Protocol Buffers a value: of the descriptors in a file, or of a schema that it names in a registry."""

    type: Literal["protobuf"]
    message: Annotated[
        str,
        form(
            r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$",
            "the full name of a message, with its package, like shop.Order",
        ),
        Field(max_length=500, description="The full name of the message, as `shop.Order`. Any other is invalid."),
    ]
    given: Annotated[
        dict[FieldName, FieldType],
        SourcesToo,
        Field(
            min_length=1,
            alias="fields",
            description="Fields of the message by name ([or another](schemes.md#other-names)), which it must have in "
            "[one of these types](schemes.md#protobuf). Its "
            "other fields are ignored.",
        ),
    ]
    schema_file: FileName | None = Field(
        default=None,
        description="The set of descriptors that `protoc --include_imports --descriptor_set_out` writes, next to the stream "
        "file. A field that the message lacks, or has in another type, is refused with code 2. The digest in receipts covers "
        "both files.",
    )
    registry: ConnectionName | None = Field(
        default=None,
        description="A connection. Each value begins with a byte 0, the number of its schema in four bytes, and the indexes of "
        "its message (Confluent's wire format).",
    )

    def read_file(self, path: Path) -> str:
        try:
            descriptors = normal(path.read_bytes())
            problem = problem_with(message_of(descriptors, self.message), self.by_source(self.given), may_lack=False)
        except OSError as away:
            raise ValueError(f"schema_file: {path} cannot be read: {away.strerror}") from away
        except ValueError as wrong:
            raise ValueError(f"schema_file: {path.name}: {wrong}") from wrong
        if problem is not None:
            raise ValueError(f"fields: {problem} ({path.name})")
        return b64encode(descriptors).decode()


class FunctionScheme(SchemePart):
    """A Python function of the stream's owner, which makes no row, one or many of each message."""

    names_are_fixed = "the function gives the fields by their names"

    type: Literal["function"]
    function: Annotated[FunctionName, Field(description="The function, as `module:name`.")]
    given: Annotated[
        dict[FieldName, FieldType],
        Field(min_length=1, alias="fields", description="The fields of the rows that it returns, and their types."),
    ]

    def own_fields(self) -> Fields:
        return {**self.given}


@dataclass(frozen=True)
class SchemeType:
    """A scheme of a package of one's own: the class of its settings, and `module:function` of its parser."""

    settings: type[SchemePart]
    parser: str
