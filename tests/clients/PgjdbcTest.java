// pgjdbc: prepared statements in text and binary, batches, cursors, generated keys, COPY, metadata.

import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
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
            + "/firn?user=" + environment.get("PGUSER");
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
            // Beyond five executions pgjdbc prepares on the server and turns to binary.
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

        // A cursor reads in portions, inside a transaction.
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

        // Metadata.
        DatabaseMetaData metadata = connection.getMetaData();
        List<String> found = new ArrayList<>();
        try (ResultSet tables = metadata.getTables(null, "public", "%", new String[] {"TABLE"})) {
            while (tables.next()) found.add(tables.getString("TABLE_NAME"));
        }
        same(found, List.of("s", "t"));
        found.clear();
        try (ResultSet columns = metadata.getColumns(null, "public", "s", "%")) {
            while (columns.next()) found.add(columns.getString("COLUMN_NAME") + " " + columns.getString("TYPE_NAME"));
        }
        same(found, List.of("id serial", "name varchar"));
        found.clear();
        try (ResultSet keys = metadata.getPrimaryKeys(null, "public", "t")) {
            while (keys.next()) found.add(keys.getString("COLUMN_NAME"));
        }
        same(found, List.of("id"));

        // Cancelling by a timeout.
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            fails("57014", () -> statement.executeQuery(
                "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b"));
        }
    }

    static long count(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            rows.next();
            return rows.getLong(1);
        }
    }
}
