// node-postgres: simple and prepared statements, types, arrays, portals, COPY, transactions, errors, a pool.
const assert = require("node:assert");
const { pipeline } = require("node:stream/promises");
const { Readable } = require("node:stream");
const { Client, Pool } = require("pg");
const Cursor = require("pg-cursor");
const copy = require("pg-copy-streams");

let checks = 0;
function same(found, expected) {
  checks += 1;
  assert.deepStrictEqual(found, expected);
}

async function main() {
  const client = new Client();
  await client.connect();
  await client.query("CREATE TABLE t (id integer PRIMARY KEY, name text, price numeric(10,2), made timestamptz, raw bytea)");
  const made = new Date(Date.UTC(2024, 1, 29, 12, 30, 1, 500));
  const raw = Buffer.from([0, 1, 254, 255]);
  for (let id = 1; id <= 3; id++) {
    const inserted = await client.query({
      name: "insert-t",
      text: "INSERT INTO t VALUES ($1, $2, $3, $4, $5) RETURNING id",
      values: [id, id === 2 ? null : `name ${id}`, "12.50", made, raw],
    });
    same(inserted.rows, [{ id }]);
    same([inserted.command, inserted.rowCount], ["INSERT", 1]);
  }
  const { rows, fields } = await client.query("SELECT * FROM t WHERE id <= $1 ORDER BY id", [2]);
  same(rows[0], { id: 1, name: "name 1", price: "12.50", made, raw });
  same(rows[1].name, null);
  same(fields.map((field) => field.name), ["id", "name", "price", "made", "raw"]);

  const both = await client.query("SELECT 1 AS a; SELECT 'x' AS b");
  same(both.map((result) => result.rows), [[{ a: 1 }], [{ b: "x" }]]);

  const arrays = await client.query("SELECT ARRAY[1, NULL]::int[] AS a, ARRAY['x', 'y z'] AS b, array_agg(id ORDER BY id) AS c FROM t WHERE id < $1", [3]);
  same(arrays.rows, [{ a: [1, null], b: ["x", "y z"], c: [1, 2] }]);

  // Arrays as parameters go out as text.
  const chosen = await client.query("SELECT id FROM t WHERE id = ANY($1) AND name <> ALL($2) ORDER BY id", [[3, 1, 2, 9], ["name 9", 'a "quoted", one']]);
  same(chosen.rows, [{ id: 1 }, { id: 3 }]);
  same((await client.query("SELECT id FROM t WHERE id = ANY($1::int[])", [[]])).rows, []);

  // A portal with a row limit.
  const cursor = client.query(new Cursor("SELECT i FROM generate_series(1, $1::int) AS s(i)", [250]));
  const portions = [];
  for (let portion = await cursor.read(100); portion.length > 0; portion = await cursor.read(100)) {
    portions.push(portion.length);
  }
  same(portions, [100, 100, 50]);
  await cursor.close();

  await client.query("CREATE TABLE copied (a integer, b text)");
  await pipeline(Readable.from(["1\tone\n2\tt", "wo\n"]), client.query(copy.from("COPY copied FROM STDIN")));
  let out = "";
  for await (const chunk of client.query(copy.to("COPY copied TO STDOUT WITH (FORMAT csv, HEADER)"))) out += chunk;
  same(out, "a,b\n1,one\n2,two\n");

  const notices = [];
  client.on("notice", (notice) => notices.push([notice.severity, notice.code]));
  await client.query("CREATE TABLE IF NOT EXISTS copied (a integer)");
  same(notices, [["NOTICE", "42P07"]]);

  await client.query("BEGIN");
  await client.query("DELETE FROM t WHERE id = $1", [1]);
  await assert.rejects(client.query("SELECT nonsense FROM t"), { code: "42703" });
  await assert.rejects(client.query("SELECT 1"), { code: "25P02" });
  await client.query("ROLLBACK");
  same((await client.query("SELECT count(*)::int AS n FROM t")).rows, [{ n: 3 }]);
  await assert.rejects(client.query("INSERT INTO t (id) VALUES (1)"), { code: "23505", constraint: "t_pkey" });
  await client.end();

  const pool = new Pool({ max: 4 });
  const answers = await Promise.all(
    Array.from({ length: 40 }, (_, index) => pool.query("SELECT $1::int * 2 AS double", [index])),
  );
  same(answers.map((answer) => answer.rows[0].double), Array.from({ length: 40 }, (_, index) => index * 2));
  await pool.end();
  console.log(`${checks} checks`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
