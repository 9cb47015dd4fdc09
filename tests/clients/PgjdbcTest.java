// pgjdbc: prepared statements in text and binary, batches, cursors, generated keys, COPY, metadata.

import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.sql.*;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import org.postgresql.PGConnection;

public class PgjdbcTest {
    static int checks = 0;

    static void same(Object found, Object expected) {
        checks++;
        if (!java.util.Objects.equals(found, expected)) {
            throw new AssertionError(found + " instead of " + expected);
        }
    }

    interface Action {
        void run() throws Exception;
    }

    static void fails(String state, Action action) throws Exception {
        checks++;
        try {
            action.run();
        } catch (SQLException error) {
            if (error.getSQLState().equals(state)) return;
            throw new AssertionError(error.getSQLState() + " instead of " + state, error);
        }
        throw new AssertionError("no error instead of " + state);
    }

    public static void main(String[] arguments) throws Exception {
        var environment = System.getenv();
        var url = "jdbc:postgresql://" + environment.get("PGHOST") + ":" + environment.get("PGPORT")
            + "/firn?user=" + environment.get("PGUSER") + "&password="
            + URLEncoder.encode(environment.get("PGPASSWORD"), StandardCharsets.UTF_8);
        try (Connection connection = DriverManager.getConnection(url)) {
            test(connection);
        }
        System.out.println(checks + " checks");
    }

    static void test(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE t (id integer PRIMARY KEY, name text, price numeric(12,2), day date, "
                + "made timestamptz, raw bytea, flag boolean, key uuid, big bigint, ratio double precision)");
        }
        var made = OffsetDateTime.of(2024, 2, 29, 12, 30, 1, 5000, ZoneOffset.UTC);
        var key = UUID.fromString("01234567-89ab-cdef-0123-456789abcdef");
        try (PreparedStatement insert =
            connection.prepareStatement("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")) {
            // After five executions pgjdbc prepares on the server and uses the binary format.
            for (int id = 1; id <= 10; id++) {
                insert.setInt(1, id);
                insert.setString(2, id % 2 == 0 ? null : "name " + id);
                insert.setBigDecimal(3, new BigDecimal("12.50"));
                insert.setObject(4, LocalDate.of(2024, 2, 29));
                insert.setObject(5, made);
                insert.setBytes(6, new byte[] {0, -1});
                insert.setBoolean(7, true);
                insert.setObject(8, key);
                insert.setLong(9, Long.MIN_VALUE);
                insert.setDouble(10, 0.1);
                same(insert.executeUpdate(), 1);
            }
        }
        try (PreparedStatement select = connection.prepareStatement("SELECT * FROM t WHERE id = ?")) {
            for (int id = 1; id <= 10; id++) {
                select.setInt(1, id);
                try (ResultSet rows = select.executeQuery()) {
                    same(rows.next(), true);
                    same(rows.getInt("id"), id);
                    same(rows.getString("name"), id % 2 == 0 ? null : "name " + id);
                    same(rows.getBigDecimal("price"), new BigDecimal("12.50"));
                    same(rows.getObject("day", LocalDate.class), LocalDate.of(2024, 2, 29));
                    same(rows.getObject("made", OffsetDateTime.class).isEqual(made), true);
                    same(Arrays.equals(rows.getBytes("raw"), new byte[] {0, -1}), true);
                    same(rows.getBoolean("flag"), true);
                    same(rows.getObject("key"), key);
                    same(rows.getLong("big"), Long.MIN_VALUE);
                    same(rows.getDouble("ratio"), 0.1);
                    same(rows.next(), false);
                }
            }
        }

        // A batch is one transaction.
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO t (id, name) VALUES (?, ?)")) {
            for (int id = 100; id < 200; id++) {
                insert.setInt(1, id);
                insert.setString(2, "batch");
                insert.addBatch();
            }
            same(Arrays.stream(insert.executeBatch()).sum(), 100);
            for (int id : new int[] {300, 1}) {
                insert.setInt(1, id);
                insert.setString(2, "batch");
                insert.addBatch();
            }
            fails("23505", () -> insert.executeBatch());
        }
        same(count(connection, "SELECT count(*) FROM t WHERE id = 300"), 0L);

        // A cursor fetches in portions, inside a transaction.
        connection.setAutoCommit(false);
        try (PreparedStatement select = connection.prepareStatement("SELECT id FROM t ORDER BY id")) {
            select.setFetchSize(7);
            List<Integer> ids = new ArrayList<>();
            try (ResultSet rows = select.executeQuery()) {
                while (rows.next()) ids.add(rows.getInt(1));
            }
            same(ids.size(), 110);
            same(ids.get(109), 199);
        }
        Savepoint savepoint = connection.setSavepoint();
        fails("22012", () -> count(connection, "SELECT 1 / 0"));
        fails("25P02", () -> count(connection, "SELECT 1"));
        connection.rollback(savepoint);
        same(count(connection, "SELECT count(*) FROM t"), 110L);
        connection.rollback();
        connection.setAutoCommit(true);

        // Generated keys.
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE s (id serial PRIMARY KEY, name varchar(20) NOT NULL, UNIQUE (name))");
            statement.executeUpdate("INSERT INTO s (name) VALUES ('a')", Statement.RETURN_GENERATED_KEYS);
            try (ResultSet keys = statement.getGeneratedKeys()) {
                same(keys.next(), true);
                same(keys.getInt("id"), 1);
            }
        }

        // COPY.
        var copy = connection.unwrap(PGConnection.class).getCopyAPI();
        same(copy.copyIn("COPY s (name) FROM STDIN WITH (FORMAT csv)", new StringReader("b\n\"c,d\"\n")), 2L);
        var out = new StringWriter();
        same(copy.copyOut("COPY (SELECT name FROM s ORDER BY id) TO STDOUT", out), 3L);
        same(out.toString(), "a\nb\nc,d\n");

        metadata(connection);
        arrays(connection);
        arrayParameters(connection);

        // Cancelling by a timeout.
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            fails("57014", () -> statement.executeQuery(
                "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b"));
        }
    }

    /** The values of a column, in order. */
    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> found = new ArrayList<>();
        try (rows) {
            while (rows.next()) found.add(rows.getString(name));
        }
        return found;
    }

    static void metadata(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE child (parent integer NOT NULL REFERENCES t (id) ON DELETE CASCADE, "
                + "part smallint DEFAULT 7, PRIMARY KEY (parent, part))");
            statement.execute("CREATE INDEX child_part ON child (part)");
            statement.execute("CREATE VIEW names AS SELECT name FROM t");
            statement.execute("CREATE SCHEMA side");
            statement.execute("CREATE TABLE side.t (id integer)");
        }
        DatabaseMetaData metadata = connection.getMetaData();
        same(metadata.getDatabaseProductName(), "PostgreSQL");
        same(column(metadata.getCatalogs(), "TABLE_CAT"), List.of("firn"));
        same(column(metadata.getSchemas(), "TABLE_SCHEM"),
            List.of("information_schema", "pg_catalog", "public", "side"));
        same(column(metadata.getSchemas(null, "s%"), "TABLE_SCHEM"), List.of("side"));
        same(column(metadata.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_NAME"),
            List.of("child", "s", "t"));
        same(column(metadata.getTables(null, null, "t", new String[] {"TABLE"}), "TABLE_SCHEM"),
            List.of("public", "side"));
        same(column(metadata.getTables(null, "public", "%", new String[] {"VIEW"}), "TABLE_NAME"), List.of("names"));
        same(column(metadata.getTables(null, "public", "%", new String[] {"SEQUENCE"}), "TABLE_NAME"),
            List.of("s_id_seq"));
        same(column(metadata.getTables(null, "public", "ch%", null), "TABLE_NAME").contains("child_pkey"), true);
        same(column(metadata.getTables(null, "pg_catalog", "pg_class", null), "TABLE_TYPE"), List.of("SYSTEM TABLE"));

        List<String> found = new ArrayList<>();
        try (ResultSet columns = metadata.getColumns(null, "public", "s", "%")) {
            while (columns.next()) {
                found.add(columns.getString("COLUMN_NAME") + " " + columns.getString("TYPE_NAME") + " "
                    + columns.getInt("COLUMN_SIZE") + " " + columns.getString("IS_NULLABLE") + " "
                    + columns.getString("IS_AUTOINCREMENT") + " " + columns.getInt("ORDINAL_POSITION"));
            }
        }
        same(found, List.of("id serial 10 NO YES 1", "name varchar 20 NO NO 2"));
        found.clear();
        try (ResultSet columns = metadata.getColumns(null, "public", "t", null)) {
            while (columns.next()) found.add(columns.getString("TYPE_NAME") + " " + columns.getInt("DATA_TYPE"));
        }
        same(found, List.of("int4 " + Types.INTEGER, "text " + Types.VARCHAR, "numeric " + Types.NUMERIC,
            "date " + Types.DATE, "timestamptz " + Types.TIMESTAMP, "bytea " + Types.BINARY, "bool " + Types.BIT,
            "uuid " + Types.OTHER, "int8 " + Types.BIGINT, "float8 " + Types.DOUBLE));
        same(column(metadata.getColumns(null, "public", "child", "part"), "COLUMN_DEF"), List.of("7"));

        found.clear();
        same(column(metadata.getPrimaryKeys(null, "public", "t"), "COLUMN_NAME"), List.of("id"));
        for (int way = 0; way < 3; way++) {
            try (ResultSet keys = switch (way) {
                case 0 -> metadata.getImportedKeys(null, "public", "child");
                case 1 -> metadata.getExportedKeys(null, "public", "t");
                default -> metadata.getCrossReference(null, "public", "t", null, "public", "child");
            }) {
                same(keys.next(), true);
                same(keys.getString("PKTABLE_NAME") + "." + keys.getString("PKCOLUMN_NAME"), "t.id");
                same(keys.getString("FKTABLE_NAME") + "." + keys.getString("FKCOLUMN_NAME"), "child.parent");
                same(keys.getInt("DELETE_RULE"), DatabaseMetaData.importedKeyCascade);
                same(keys.getString("FK_NAME"), "child_parent_fkey");
                same(keys.next(), false);
            }
        }
        found.clear();
        same(column(metadata.getIndexInfo(null, "public", "t", true, true), "COLUMN_NAME"), List.of("id"));
        same(column(metadata.getBestRowIdentifier(null, "public", "t", DatabaseMetaData.bestRowSession, false), "COLUMN_NAME"), List.of("id"));
        same(column(metadata.getTypeInfo(), "TYPE_NAME").containsAll(List.of("int4", "text", "timestamptz", "uuid")), true);
        same(column(metadata.getTablePrivileges(null, "public", "t"), "PRIVILEGE").contains("SELECT"), true);
        same(column(metadata.getColumnPrivileges(null, "public", "t", "id"), "PRIVILEGE").contains("SELECT"), true);
        // Metadata of features that do not exist are empty results, not errors.
        same(column(metadata.getUDTs(null, "public", "%", null), "TYPE_NAME"), List.of());
        same(column(metadata.getFunctions(null, "public", "%"), "FUNCTION_NAME"), List.of());
        same(column(metadata.getProcedures(null, "public", "%"), "PROCEDURE_NAME"), List.of());
        same(column(metadata.getFunctionColumns(null, "public", "%", "%"), "COLUMN_NAME"), List.of());
        same(column(metadata.getVersionColumns(null, "public", "t"), "COLUMN_NAME").contains("ctid"), true);
        same(metadata.getMaxColumnNameLength() >= 63, true);
        same(metadata.getSQLKeywords().contains("ilike"), true);

        // The metadata of a result before it is executed.
        try (PreparedStatement select = connection.prepareStatement("SELECT id, name AS n, price FROM t WHERE id = ?")) {
            ResultSetMetaData columns = select.getMetaData();
            same(columns.getColumnCount(), 3);
            same(columns.getColumnLabel(2), "n");
            same(columns.getColumnTypeName(3), "numeric");
            same(columns.getPrecision(3) + "," + columns.getScale(3), "12,2");
            same(select.getParameterMetaData().getParameterType(1), Types.INTEGER);
        }
    }

    /** Arrays as results, as text at first and in binary later. */
    static void arrays(Connection connection) throws SQLException {
        String sql = "SELECT ARRAY[1, NULL, 3], ARRAY['a', 'b,c', ''], array_agg(id ORDER BY id), ARRAY[[1, 2], [3, 4]] "
            + "FROM t WHERE id <= ?";
        try (PreparedStatement select = connection.prepareStatement(sql)) {
            for (int round = 0; round < 10; round++) {
                select.setInt(1, 2);
                try (ResultSet rows = select.executeQuery()) {
                    same(rows.next(), true);
                    same(Arrays.asList((Object[]) rows.getArray(1).getArray()).toString().endsWith(", null, 3]"), true);
                    same(List.of((String[]) rows.getArray(2).getArray()), List.of("a", "b,c", ""));
                    same(List.of((Integer[]) rows.getArray(3).getArray()), List.of(1, 2));
                    same(((Object[]) rows.getArray(4).getArray()).length, 2);
                }
            }
        }
    }

    /** Arrays as parameters, as text at first and in binary later. */
    static void arrayParameters(Connection connection) throws SQLException {
        String sql = "SELECT count(*) FROM t WHERE id = ANY (?) AND (name = ANY (?) OR name <> ALL (?))";
        try (PreparedStatement select = connection.prepareStatement(sql)) {
            for (int round = 0; round < 10; round++) {
                select.setArray(1, connection.createArrayOf("integer", new Integer[] {1, 2, null, 777}));
                select.setArray(2, connection.createArrayOf("text", new String[] {"name 1", "a,\"b\""}));
                select.setArray(3, connection.createArrayOf("varchar", new String[] {}));
                try (ResultSet rows = select.executeQuery()) {
                    same(rows.next(), true);
                    same(rows.getLong(1), 2L);
                }
            }
        }
        try (PreparedStatement select = connection.prepareStatement("SELECT id FROM t WHERE id = ANY (?) ORDER BY id")) {
            for (int round = 0; round < 10; round++) {
                select.setObject(1, new int[] {2, 1});
                try (ResultSet rows = select.executeQuery()) {
                    same(rows.next() && rows.getInt(1) == 1 && rows.next() && rows.getInt(1) == 2 && !rows.next(), true);
                }
            }
        }
    }

    static long count(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            rows.next();
            return rows.getLong(1);
        }
    }
}
