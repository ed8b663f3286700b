"""Schemas of JSON, as Spark writes them."""

from __future__ import annotations

# tests/integration/test_json_schema.py compares them with Spark's own reading of the same texts.
SCHEMAS = {
    "id int, l array<struct<x:int not null,price decimal>>": "struct<id:int,l:array<struct<x:int,price:decimal(10,0)>>>",
    "a: INT NOT NULL COMMENT 'x', `b c` Map<String, int>": "struct<a:int,b c:map<string,int>>",
    "1a long, b timestamp_ltz , c timestamp_ntz": "struct<1a:bigint,b:timestamp,c:timestamp_ntz>",
    "b byte,s short,i integer,r real,d dec(3),e numeric(5, 2),v variant,y binary,t date,o boolean": (
        "struct<b:tinyint,s:smallint,i:int,r:float,d:decimal(3,0),e:decimal(5,2),v:variant,y:binary,t:date,o:boolean>"
    ),
    "array array<array<double>>, `a``b` string": "struct<array:array<array<double>>,a`b:string>",
}
