#!/bin/sh
# Writes the tables of facts that the registry reads: what PostgreSQL's catalogs say of its functions, operators, casts,
# aggregates and types, as far as all types in question are built in here. Arguments are psql's, for a PostgreSQL 15.
set -eu
cd "$(dirname "$0")"
types=$(grep -oE 'TypeId\([0-9]+\)|= [0-9]+;' ../../../base/src/data_type.rs | grep -oE '[0-9]+' | tr '\n' ',')
known="oid = ANY ('{${types}0}'::oid[]) OR typelem = ANY ('{${types}0}'::oid[]) AND typlen = -1 AND typinput = 'array_in'::regproc"
query() {
    psql "$@" -qAtX -F "$(printf '\t')" -f - 
}
prelude="SET search_path = pg_catalog;
CREATE TEMP VIEW known AS SELECT oid FROM pg_type WHERE $known;"

query "$@" > functions.tsv <<SQL
$prelude
\\set foreign '''{inet,txid_snapshot,pg_snapshot}''::regtype[]::oid[]'
SELECT p.oid, proname, prokind, proretset, provolatile, proisstrict, proparallel, provariadic, prorettype,
       proargtypes::text,
       coalesce((SELECT string_agg(coalesce(nullif(proargnames[i], ''), '-'), ' ' ORDER BY i)
                 FROM generate_subscripts(coalesce(proallargtypes, proargtypes::oid[]), 1) AS s(j), LATERAL (SELECT s.j + CASE WHEN proallargtypes IS NULL THEN 1 ELSE 0 END) AS n(i)), ''),
       -- Addresses are text.
       coalesce(array_to_string(array_replace(proallargtypes, 'inet'::regtype::oid, 'text'::regtype::oid), ' '), ''),
       coalesce(array_to_string(proargmodes, ''), ''),
       coalesce((SELECT string_agg(pg_get_function_arg_default(p.oid, i), '|' ORDER BY i) FROM generate_series(1, pronargs) AS s(i)), '')
FROM pg_proc AS p
WHERE pronamespace = 'pg_catalog'::regnamespace
  AND prorettype IN (TABLE known) AND proargtypes::oid[] <@ ARRAY(TABLE known)
  AND NOT (prorettype = 'internal'::regtype OR 'internal'::regtype = ANY (proargtypes::oid[]))
  AND prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype, 'language_handler'::regtype)
ORDER BY p.oid;
-- Functions whose type is not built in have text in its place.
SELECT oid, proname, prokind, proretset, provolatile, proisstrict, proparallel, 0,
       CASE WHEN prorettype = ANY (:foreign) THEN 25 ELSE prorettype END,
       (SELECT coalesce(string_agg(CASE WHEN t = ANY (:foreign) THEN 25 ELSE t END::text, ' ' ORDER BY i), '')
        FROM unnest(proargtypes::oid[]) WITH ORDINALITY AS a(t, i)), rtrim(repeat('- ', pronargs)), '', '', ''
FROM pg_proc
WHERE oid IN (2196, 2198, 2944, 2945, 2946, 2947, 2948, 5061, 5062, 5063, 5064, 5065)
ORDER BY oid;
SQL

query "$@" > operators.tsv <<SQL
$prelude
SELECT o.oid, oprname, oprleft, oprright, oprresult, oprcode::oid, oprcom, oprnegate, oprcanmerge, oprcanhash,
       coalesce((SELECT min(amopstrategy) FROM pg_amop AS a JOIN pg_am AS m ON m.oid = a.amopmethod
                 WHERE amopopr = o.oid AND amname = 'btree' AND EXISTS (
                     SELECT FROM pg_opclass AS c WHERE c.opcfamily = a.amopfamily AND c.opcdefault)), 0)
FROM pg_operator AS o
WHERE oprleft IN (SELECT 0 UNION TABLE known) AND oprright IN (TABLE known) AND oprresult IN (TABLE known)
ORDER BY o.oid;
SQL

query "$@" > casts.tsv <<SQL
$prelude
SELECT castsource, casttarget, castfunc, castcontext, castmethod
FROM pg_cast
WHERE castsource IN (TABLE known) AND casttarget IN (TABLE known)
ORDER BY castsource, casttarget;
SQL

query "$@" > aggregates.tsv <<SQL
$prelude
SELECT aggfnoid::oid, aggkind, aggnumdirectargs, aggsortop, aggfinalmodify
FROM pg_aggregate
ORDER BY aggfnoid::oid;
SQL

query "$@" > types.tsv <<SQL
$prelude
SELECT oid, typinput::oid, typoutput::oid, typreceive::oid, typsend::oid, typmodin::oid, typmodout::oid
FROM pg_type JOIN known USING (oid)
ORDER BY oid;
SQL

query "$@" > keywords.txt <<SQL
SELECT word FROM pg_get_keywords() WHERE catcode <> 'U' ORDER BY word COLLATE "C";
SQL
