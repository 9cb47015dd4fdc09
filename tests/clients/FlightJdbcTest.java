// The JDBC driver for Arrow Flight SQL: types, prepared statements with `?`, metadata, errors. It has no
// transactions: version 18 sends every statement by itself, whatever the argument of setAutoCommit was.

import java.math.BigDecimal;
import java.sql.*;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

public class FlightJdbcTest {
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
            if (error.getMessage().contains("(SQLSTATE " + state + ")")) return;
            throw new AssertionError(error.getMessage() + " instead of " + state, error);
        }
        throw new AssertionError("no error instead of " + state);
    }

    static Connection connect(String password) throws SQLException {
        var environment = System.getenv();
        var properties = new Properties();
        properties.put("user", environment.get("PGUSER"));
        properties.put("password", password);
        properties.put("useEncryption", "false");
        return DriverManager.getConnection(
            "jdbc:arrow-flight-sql://127.0.0.1:" + environment.get("FIRN_FLIGHT_PORT") + "/", properties);
    }

    public static void main(String[] arguments) {
        int code = 0;
        try {
            try (Connection connection = connect(System.getenv("PGPASSWORD"))) {
                test(connection);
            }
            try {
                connect("wrong").close();
                throw new AssertionError("a wrong password is good enough");
            } catch (SQLException error) {
                checks++;
            }
            System.out.println(checks + " checks");
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        // The driver does not end all its threads, which would keep the program running.
        System.exit(code);
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        var found = new ArrayList<String>();
        // The driver reports leaked memory if it is closed before its results.
        try (rows) {
            while (rows.next()) found.add(rows.getString(name));
        }
        return found;
    }

    static void test(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            same(statement.executeUpdate("CREATE TABLE t (id integer PRIMARY KEY, s smallint, l bigint, r real, "
                + "d double precision, b boolean, n numeric(12,2), t text, v varchar(10), c char(3), y bytea, "
                + "da date, ti time, ts timestamp, tz timestamptz, iv interval, u uuid)"), 0);
            same(statement.executeUpdate("INSERT INTO t VALUES (1, 2, 3, 1.5, 2.5, true, 12.34, 'снег', 'var', 'ch', "
                + "'\\x0102', '2024-02-29', '12:30:01.5', '2024-02-29 12:30:01.123456', '2024-02-29 12:30:01+00', "
                + "'1 day 2 seconds', '01234567-89ab-cdef-0123-456789abcdef'), "
                + "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"), 2);
            try (ResultSet row = statement.executeQuery("SELECT * FROM t ORDER BY id")) {
                row.next();
                same(row.getInt("id"), 1);
                same(row.getShort("s"), (short) 2);
                same(row.getLong("l"), 3L);
                same(row.getFloat("r"), 1.5f);
                same(row.getDouble("d"), 2.5);
                same(row.getBoolean("b"), true);
                same(row.getBigDecimal("n"), new BigDecimal("12.34"));
                same(row.getString("t"), "снег");
                same(row.getString("v"), "var");
                same(row.getString("c"), "ch ");
                same(row.getBytes("y").length, 2);
                same(row.getDate("da").toString(), "2024-02-29");
                same(row.getTime("ti").toString().startsWith("12:30:01"), true);
                same(row.getTimestamp("ts"), Timestamp.valueOf("2024-02-29 12:30:01.123456"));
                same(row.getTimestamp("tz") != null, true);
                same(row.getObject("iv").toString(), "P1D PT2S");
                same(row.getBytes("u").length, 16);
                same(row.getMetaData().getPrecision(7), 12);
                same(row.getMetaData().getScale(7), 2);
                row.next();
                for (int position = 2; position <= 17; position++) same(row.getString(position), null);
                same(row.next(), false);
            }
            fails("42P01", () -> statement.executeQuery("SELECT * FROM nowhere"));
            fails("23505", () -> statement.executeUpdate("INSERT INTO t (id) VALUES (1)"));
            try (ResultSet rows = statement.executeQuery("SELECT g FROM generate_series(1, 100000) g")) {
                long sum = 0;
                while (rows.next()) sum += rows.getLong(1);
                same(sum, 5000050000L);
            }
        }
        var insert = "INSERT INTO t (id, l, t, da, ts, b, y, d, n) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            for (int id = 10; id < 13; id++) {
                statement.setInt(1, id);
                statement.setLong(2, 20);
                statement.setString(3, "snow?");
                statement.setDate(4, Date.valueOf("2024-02-29"));
                statement.setTimestamp(5, Timestamp.valueOf("2024-02-29 01:02:03"));
                statement.setBoolean(6, true);
                statement.setBytes(7, new byte[] {1, 2});
                statement.setDouble(8, 0.5);
                // The driver needs the scale of a plain numeric.
                statement.setBigDecimal(9, new BigDecimal("1.25").setScale(16));
                same(statement.executeUpdate(), 1);
            }
        }
        try (PreparedStatement statement =
                connection.prepareStatement("SELECT t, n, '?' AS mark FROM t WHERE id = ? AND t = ?")) {
            statement.setInt(1, 12);
            statement.setString(2, "snow?");
            try (ResultSet row = statement.executeQuery()) {
                row.next();
                same(row.getString(1), "snow?");
                same(row.getBigDecimal(2), new BigDecimal("1.25"));
                same(row.getString(3), "?");
            }
        }
        var metadata = connection.getMetaData();
        same(metadata.getDatabaseProductName(), "FirnDB");
        // The driver's defaults are false, 0 and null if the server does not send these.
        same(metadata.supportsGroupBy(), true);
        same(metadata.supportsGroupByUnrelated(), true);
        same(metadata.supportsUnion() && metadata.supportsUnionAll(), true);
        same(metadata.supportsOuterJoins(), true);
        same(metadata.supportsFullOuterJoins() && metadata.supportsLimitedOuterJoins(), true);
        same(metadata.supportsSubqueriesInIns() && metadata.supportsSubqueriesInQuantifieds(), true);
        same(metadata.supportsMinimumSQLGrammar() && metadata.supportsANSI92EntryLevelSQL(), true);
        same(metadata.supportsANSI92FullSQL(), false);
        same(metadata.supportsSchemasInIndexDefinitions(), true);
        same(metadata.supportsPositionedUpdate(), false);
        same(metadata.supportsResultSetType(ResultSet.TYPE_FORWARD_ONLY), true);
        same(metadata.supportsResultSetType(ResultSet.TYPE_SCROLL_SENSITIVE), false);
        same(metadata.supportsTransactionIsolationLevel(Connection.TRANSACTION_SERIALIZABLE), true);
        same(metadata.supportsTransactionIsolationLevel(Connection.TRANSACTION_READ_UNCOMMITTED), false);
        same(metadata.getMaxColumnsInTable(), 1600);
        same(metadata.getMaxColumnNameLength(), 0);
        same(metadata.getExtraNameCharacters(), "$");
        same(List.of(metadata.getSQLKeywords().split(", ")).contains("ilike"), true);
        same(List.of(metadata.getNumericFunctions().split(", ")).contains("power"), true);
        same(List.of(metadata.getStringFunctions().split(", ")).contains("substring"), true);
        same(List.of(metadata.getSystemFunctions().split(", ")).contains("version"), true);
        same(List.of(metadata.getTimeDateFunctions().split(", ")).contains("date_trunc"), true);
        same(column(metadata.getTables(null, "public", "%", null), "TABLE_NAME"), List.of("t"));
        same(column(metadata.getColumns(null, "public", "t", "n"), "TYPE_NAME"), List.of("numeric(12,2)"));
        same(column(metadata.getPrimaryKeys(null, "public", "t"), "COLUMN_NAME"), List.of("id"));
        same(column(metadata.getSchemas(), "TABLE_SCHEM").contains("public"), true);
    }
}
