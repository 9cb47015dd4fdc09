#!/usr/bin/env python3
"""Writes the cases: asks a PostgreSQL 15 what its functions answer. Arguments are psql's.

A family is a file. It names functions by their signatures, as the registry does; what they are called with is made of
INPUTS, or given with the function. Cases are the same each time. The database has the encoding UTF8, the collation C and
the character classification C.UTF-8: letters and case are Unicode's, as they are here.
"""

import itertools
import os
import random
import re
import subprocess
import sys

from families import AGGREGATES, FAMILIES, GRAMMAR, INPUTS, SETS

# Families that are written, all if there are none: arguments of the form --family=name, which are not psql's.
CHOSEN = [word.split("=")[1] for word in sys.argv[1:] if word.startswith("--family=")]
PSQL = [word for word in sys.argv[1:] if not word.startswith("--family=")]
HERE = os.path.dirname(os.path.abspath(__file__))
MOST = 14

PRELUDE = r"""
\set ON_ERROR_STOP on
SET TimeZone = 'Europe/Berlin'; SET DateStyle = 'ISO, MDY'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 1;
CREATE FUNCTION pg_temp.answer(expression text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
    EXECUTE 'SELECT CASE WHEN r IS NULL AND NOT (r IS DISTINCT FROM NULL) THEN NULL ELSE format(''%s'', r) END FROM (SELECT ' || expression || ' AS r OFFSET 0) AS t' INTO result;
    RETURN coalesce('=' || encode(convert_to(result, 'UTF8'), 'hex'), 'NULL');
EXCEPTION WHEN OTHERS THEN
    RETURN '!' || SQLSTATE;
END $$;
"""


def psql(script):
    run = subprocess.run(["psql", "-qAtX", *PSQL, "-f", "-"], input=script, capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return run.stdout.splitlines()


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def answers(expressions):
    script = PRELUDE + "".join(f"SELECT pg_temp.answer({quoted(expression)});\n" for expression in expressions)
    lines = psql(script)
    assert len(lines) == len(expressions), (len(lines), len(expressions))
    return [bytes.fromhex(line[1:]).decode() if line[0] == "=" else None if line == "NULL" else line for line in lines]


def field(value):
    if value is None:
        return r"\N"
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def literal(value, ty):
    """A value of a type, by the name that it has in pg_type: those of arrays begin with an underscore."""
    name, _, modifier = ty.partition(":")
    sql = '"' + name + '"'
    return ("NULL" if value is None else quoted(value)) + "::pg_catalog." + sql


def catalog():
    rows = psql("SELECT oid, oid::regprocedure::text, proname, ARRAY(SELECT typname FROM unnest(proargtypes) WITH ORDINALITY AS a(t, n) "
                "JOIN pg_type ON oid = t ORDER BY n)::text[], "
                "(SELECT typname FROM pg_type WHERE oid = prorettype) FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace;")
    found = {}
    for row in rows:
        oid, _, name, arguments, result = row.split("|")
        types = [word.strip('"') for word in arguments.strip("{}").split(",") if word]
        found[f"{name}({','.join(types)})"] = (oid, name, types, result)
    return found


def combinations(name, choices):
    """All, or some that are drawn with each value of each argument among them; and NULL in each place."""
    everything = list(itertools.islice(itertools.product(*choices), 5000))
    if len(everything) > MOST:
        draw = random.Random(name)
        some = draw.sample(everything, max(MOST - max(len(values) for values in choices), 4))
        for number in range(max(len(values) for values in choices)):
            some.append(tuple(values[number % len(values)] for values in choices))
        everything = sorted(set(some), key=repr)
    for place in range(len(choices)):
        everything.append(tuple(None if at == place else values[0] for at, values in enumerate(choices)))
    return everything


def functions(known):
    for family, entries in FAMILIES.items():
        blocks, expressions = [], []
        for entry in entries:
            entry = entry if isinstance(entry, tuple) else (entry, None)
            signature, given = entry[0], entry[1]
            oid, name, types, result = known[signature]
            rows = None
            if len(entry) > 2:
                types, result = entry[2].split(" ")[:-1], entry[2].split(" ")[-1]
            if isinstance(given, list):
                rows = given
            else:
                choices = []
                for place, ty in enumerate(types):
                    special = (given or {}).get(place)
                    choices.append(special or INPUTS[ty.partition(":")[0]])
                rows = combinations(signature, choices)
            blocks.append((f"@ {oid} {' '.join([name, *types])} -> {result}", rows))
            for row in rows:
                arguments = ", ".join(literal(value, ty) for value, ty in zip(row, types))
                expressions.append(f'pg_catalog."{name}"({arguments})')
        results = iter(answers(expressions))
        with open(f"{HERE}/functions-{family}.txt", "w") as out:
            for header, rows in blocks:
                out.write(header + "\n")
                for row in rows:
                    answer = next(results)
                    if not is_too_long(header, answer):
                        out.write("\t".join(map(field, [*row, answer])) + "\n")


def sets(known):
    """Functions that return sets: the answer is an array of the texts of the rows."""
    for family, entries in SETS.items():
        blocks, expressions = [], []
        for signature, types, result, rows in entries:
            oid, name, _, _ = known[signature]
            blocks.append((f"@ {oid} {' '.join([name, *types])} -> {result}", rows))
            for row in rows:
                arguments = ", ".join(literal(value, ty) for value, ty in zip(row, types))
                expressions.append(f'ARRAY(SELECT r::text FROM pg_catalog."{name}"({arguments}) AS s(r))')
        results = iter(answers(expressions))
        with open(f"{HERE}/sets-{family}.txt", "w") as out:
            for header, rows in blocks:
                out.write(header + "\n")
                for row in rows:
                    out.write("\t".join(map(field, [*row, next(results)])) + "\n")


def grammar():
    """Functions that stand for a part of the grammar: what is called with a row is an expression of its own."""
    blocks, expressions = [], []
    for oid, name, types, result, rows, expression in GRAMMAR:
        blocks.append((f"@ {oid} {' '.join([name, *types])} -> {result}", rows))
        expressions += [expression(*row) for row in rows]
    results = iter(answers(expressions))
    with open(f"{HERE}/functions-grammar.txt", "w") as out:
        for header, rows in blocks:
            out.write(header + "\n")
            for row in rows:
                out.write("\t".join(map(field, [*row, next(results)])) + "\n")


def is_too_long(header, answer):
    """Numerics have 38 digits here."""
    digits = re.sub(r"[^0-9]", "", answer or "").lstrip("0")
    return header.endswith("-> numeric") and len(digits) > 38


def aggregates(known):
    for family, entries in AGGREGATES.items():
        blocks, expressions = [], []
        for signature, types, result, groups, direct in entries:
            oid, name, _, _ = known[signature]
            blocks.append((f"@ {oid} {' '.join([name, *types])} -> {result}", groups))
            for group in groups:
                # Direct arguments are single values; each other one is an array of the values of the rows.
                values = [literal(value, ty) for value, ty in zip(group[:direct], types)]
                columns = [f"c{place}" for place in range(direct, len(types))]
                # There are no arrays of arrays: rows of arrays are an array of their texts.
                arrays = ", ".join(literal(array, "_text" if ty[0] == "_" else "_" + ty) for array, ty in zip(group[direct:], types[direct:]))
                arguments = [f"{column}::{ty}" if ty[0] == "_" else column for column, ty in zip(columns, types[direct:])]
                source = f"unnest({arrays}) AS g({', '.join(columns)})" if types else "generate_series(1, 3)"
                if name in ("rank", "dense_rank", "percent_rank", "cume_dist"):
                    # The last argument says how the column is ordered.
                    order = int(group[2].strip("{}").split(",")[0] or 0)
                    how = ("DESC" if order & 1 else "ASC") + (" NULLS FIRST" if order & 2 else " NULLS LAST")
                    call = f"{name}({values[0]}) WITHIN GROUP (ORDER BY c1 {how})"
                elif name in ("mode", "percentile_cont", "percentile_disc"):
                    call = f"{name}({', '.join(values)}) WITHIN GROUP (ORDER BY {columns[0]})"
                else:
                    call = f"{name}({', '.join(arguments) or '*'})"
                expressions.append(f"(SELECT {call} FROM {source})")
        results = iter(answers(expressions))
        with open(f"{HERE}/aggregates-{family}.txt", "w") as out:
            for header, groups in blocks:
                out.write(header + "\n")
                for group in groups:
                    out.write("\t".join(map(field, [*group, next(results)])) + "\n")


known = catalog()
if len(CHOSEN) == 0:
    functions(known)
    aggregates(known)
    grammar()
    sets(known)
else:
    FAMILIES = {name: FAMILIES[name] for name in CHOSEN if name in FAMILIES}
    AGGREGATES = {name: AGGREGATES[name] for name in CHOSEN if name in AGGREGATES}
    SETS = {name: SETS[name] for name in CHOSEN if name in SETS}
    functions(known)
    aggregates(known)
    sets(known)
    if "grammar" in CHOSEN:
        grammar()
