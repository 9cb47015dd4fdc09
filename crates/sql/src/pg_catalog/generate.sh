#!/bin/sh
# Writes the tables of facts that the system schemas are made from: the shapes of PostgreSQL's relations, the types that have no
# values here, the functions that types name and the registry lacks, collations, languages, operator classes and families.
# Arguments are psql's, for a PostgreSQL 15.
set -eu
cd "$(dirname "$0")"
# The types that have values here.
types=$(grep -oE 'TypeId\([0-9]+\)|= [0-9]+;' ../../../base/src/data_type.rs | grep -oE '[0-9]+' | tr '\n' ',')
known="oid = ANY ('{${types}0}'::oid[]) OR typelem = ANY ('{${types}0}'::oid[]) AND typelem NOT IN (22, 30) AND typlen = -1 AND typinput = 'array_in'::regproc"
query() {
    psql "$@" -qAtX -F "$(printf '\t')" -f -
}
prelude="SET search_path = pg_catalog;
CREATE TEMP VIEW known AS SELECT oid FROM pg_type WHERE $known;"

# Oid, relkind, name, and columns as name:type or name:type(modifier). A domain is its base type, and a type without values is text.
shapes() {
    cat <<SQL
$prelude
SELECT c.oid, relkind, relname,
       string_agg(attname || ':' || CASE WHEN t.oid IN (TABLE known) AND t.typtype = 'b' THEN t.typname WHEN t.typcategory = 'A' OR t.typname = 'anyarray' THEN '_text' ELSE 'text' END
                  || CASE WHEN m.modifier <> -1 THEN '(' || m.modifier || ')' ELSE '' END, ' ' ORDER BY attnum)
FROM pg_class AS c JOIN pg_attribute ON attrelid = c.oid AND attnum > 0
     JOIN pg_type AS d ON d.oid = atttypid JOIN pg_type AS t ON t.oid = CASE d.typtype WHEN 'd' THEN d.typbasetype ELSE d.oid END,
     LATERAL (SELECT CASE d.typtype WHEN 'd' THEN d.typtypmod ELSE atttypmod END) AS m (modifier)
WHERE relnamespace = '$1'::regnamespace AND relkind IN ('r', 'v')
GROUP BY c.oid
ORDER BY relname COLLATE "C";
SQL
}
shapes pg_catalog | query "$@" > relations.tsv
shapes information_schema | query "$@" > ../information_schema/relations.tsv

# Types that have no values here: the rows of pg_type.
query "$@" > types.tsv <<SQL
$prelude
SELECT oid, typname, typlen, typbyval, typtype, typcategory, typispreferred, typdelim, typelem, typarray, typinput::oid, typoutput::oid,
       typreceive::oid, typsend::oid, typmodin::oid, typmodout::oid, typalign, typstorage, typcollation, typsubscript::oid,
       format_type(oid, NULL)
FROM pg_type
WHERE oid NOT IN (TABLE known) AND typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND oid < 10000
  AND NOT EXISTS (SELECT FROM pg_type AS e WHERE e.oid = pg_type.typelem AND e.typtype <> 'b')
ORDER BY oid;
SQL

# Functions that types name: of these, only those are shown from here that the registry lacks.
query "$@" > procedures.tsv <<SQL
$prelude
SELECT p.oid, proname, pronargs, prorettype, proargtypes, provolatile, prokind, proretset, proisstrict
FROM pg_proc AS p
WHERE EXISTS (SELECT FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND (typtype = 'b' OR oid IN (TABLE known))
              AND pg_type.oid < 10000 AND p.oid IN (typinput, typoutput, typreceive, typsend, typmodin, typmodout, typsubscript, typanalyze))
ORDER BY p.oid;
SQL

# Operator classes of B-trees, with the names of their families.
query "$@" > classes.tsv <<SQL
$prelude
SELECT c.oid, opcname, opcfamily, opfname, opcintype, opcdefault
FROM pg_opclass AS c JOIN pg_opfamily AS f ON f.oid = opcfamily
WHERE opcmethod = 403 AND opcintype IN (TABLE known)
ORDER BY c.oid;
SQL
