//! The server's description of itself: facts about its SQL, and its types.

use std::collections::HashMap;

use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo, SqlNullOrdering, SqlOuterJoinsSupportLevel, SqlSupportedCaseSensitivity,
    SqlSupportedElementActions, SqlSupportedGroupBy, SqlSupportedResultSetConcurrency,
    SqlSupportedResultSetType, SqlSupportedSubqueries, SqlSupportedTransaction, SqlSupportedUnions,
    SqlTransactionIsolationLevel, SupportedSqlGrammar, XdbcDataType, XdbcDatetimeSubcode,
};
use firn_base::sync::OnceLock;
use firn_base::{Type, TypeId};

use super::FlightConfig;

/// The version of FirnDB; `version()` returns the release of PostgreSQL whose dialect is supported.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of Arrow that results are encoded with.
const ARROW_VERSION: &str = "59.3.2";

/// PostgreSQL's keywords that have to be quoted as names, of functions and types at least, and that are not in SQL:2003:
/// only these are reported.
const KEYWORDS: [&str; 20] = [
    "analyse",
    "analyze",
    "bit",
    "concurrently",
    "current_catalog",
    "current_schema",
    "do",
    "freeze",
    "greatest",
    "ilike",
    "isnull",
    "least",
    "limit",
    "notnull",
    "offset",
    "placing",
    "returning",
    "setof",
    "variadic",
    "verbose",
];

/// Functions by subject, as JDBC requires: those that programs use with other databases.
const NUMERIC_FUNCTIONS: [&str; 34] = [
    "abs",
    "acos",
    "asin",
    "atan",
    "atan2",
    "cbrt",
    "ceil",
    "ceiling",
    "cos",
    "cosh",
    "cot",
    "degrees",
    "div",
    "exp",
    "floor",
    "gcd",
    "lcm",
    "ln",
    "log",
    "log10",
    "mod",
    "pi",
    "power",
    "radians",
    "random",
    "round",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "width_bucket",
];
const STRING_FUNCTIONS: [&str; 36] = [
    "ascii",
    "bit_length",
    "btrim",
    "char_length",
    "character_length",
    "chr",
    "concat",
    "concat_ws",
    "format",
    "initcap",
    "left",
    "length",
    "lower",
    "lpad",
    "ltrim",
    "md5",
    "octet_length",
    "overlay",
    "position",
    "quote_ident",
    "quote_literal",
    "regexp_replace",
    "repeat",
    "replace",
    "reverse",
    "right",
    "rpad",
    "rtrim",
    "split_part",
    "starts_with",
    "strpos",
    "substr",
    "substring",
    "to_char",
    "to_hex",
    "translate",
];
const SYSTEM_FUNCTIONS: [&str; 9] = [
    "coalesce",
    "current_database",
    "current_schema",
    "current_schemas",
    "current_setting",
    "current_user",
    "nullif",
    "pg_backend_pid",
    "version",
];
const DATETIME_FUNCTIONS: [&str; 19] = [
    "age",
    "clock_timestamp",
    "current_date",
    "current_time",
    "current_timestamp",
    "date_bin",
    "date_part",
    "date_trunc",
    "extract",
    "justify_days",
    "localtime",
    "localtimestamp",
    "make_date",
    "make_interval",
    "make_timestamp",
    "now",
    "statement_timestamp",
    "to_timestamp",
    "transaction_timestamp",
];

/// The most columns of a table, and of an index.
const TABLE_COLUMNS: i64 = 1600;
const INDEX_COLUMNS: i64 = 32;

/// Limits that do not exist, or that only the size of messages or memory sets. Names may be of any length.
const UNBOUNDED: [SqlInfo; 17] = [
    SqlInfo::SqlMaxBinaryLiteralLength,
    SqlInfo::SqlMaxCharLiteralLength,
    SqlInfo::SqlMaxColumnNameLength,
    SqlInfo::SqlMaxColumnsInGroupBy,
    SqlInfo::SqlMaxColumnsInOrderBy,
    SqlInfo::SqlMaxColumnsInSelect,
    SqlInfo::SqlMaxConnections,
    SqlInfo::SqlMaxCursorNameLength,
    SqlInfo::SqlMaxIndexLength,
    SqlInfo::SqlDbSchemaNameLength,
    SqlInfo::SqlMaxProcedureNameLength,
    SqlInfo::SqlMaxCatalogNameLength,
    SqlInfo::SqlMaxRowSize,
    SqlInfo::SqlMaxStatementLength,
    SqlInfo::SqlMaxTableNameLength,
    SqlInfo::SqlMaxTablesInSelect,
    SqlInfo::SqlMaxUsernameLength,
];

/// The lowest level of `SupportedAnsi92SqlGrammarLevel`, which arrow-flight does not export.
const ANSI92_ENTRY_SQL: i32 = 0;

/// Options, each of which is a bit.
fn bits<const N: usize>(options: [i32; N]) -> i32 {
    options.into_iter().fold(0, |bits, option| bits | 1 << option)
}

/// The facts, for a client that requests only their types.
pub(super) fn sql_info() -> &'static SqlInfoData {
    static INFO: OnceLock<SqlInfoData> = OnceLock::new();
    INFO.get_or_init(|| sql_info_of(&FlightConfig::default()))
}

/// The facts about a server.
pub(super) fn sql_info_of(config: &FlightConfig) -> SqlInfoData {
    let transaction_timeout_ms = i32::try_from(config.transaction_timeout.as_millis()).unwrap_or(i32::MAX);
    let max_statements = i64::try_from(config.max_statements).unwrap_or(i64::MAX);
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "FirnDB");
    info.append(SqlInfo::FlightSqlServerVersion, VERSION);
    info.append(SqlInfo::FlightSqlServerArrowVersion, ARROW_VERSION);
    info.append(SqlInfo::FlightSqlServerReadOnly, false);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::Savepoint as i32);
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    info.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, true);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, 0i32);
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, transaction_timeout_ms);
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, true);
    info.append(SqlInfo::SqlDdlTable, true);
    info.append(SqlInfo::SqlIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(
        SqlInfo::SqlQuotedIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32,
    );
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i32);
    info.append(SqlInfo::SqlKeywords, &KEYWORDS[..]);
    info.append(SqlInfo::SqlNumericFunctions, &NUMERIC_FUNCTIONS[..]);
    info.append(SqlInfo::SqlStringFunctions, &STRING_FUNCTIONS[..]);
    info.append(SqlInfo::SqlSystemFunctions, &SYSTEM_FUNCTIONS[..]);
    info.append(SqlInfo::SqlDatetimeFunctions, &DATETIME_FUNCTIONS[..]);
    info.append(SqlInfo::SqlSearchStringEscape, "\\");
    info.append(SqlInfo::SqlExtraNameCharacters, "$");
    info.append(SqlInfo::SqlSupportsColumnAliasing, true);
    info.append(SqlInfo::SqlNullPlusNullIsNull, true);
    info.append(SqlInfo::SqlSupportsTableCorrelationNames, true);
    info.append(SqlInfo::SqlSupportsDifferentTableCorrelationNames, false);
    info.append(SqlInfo::SqlSupportsExpressionsInOrderBy, true);
    info.append(SqlInfo::SqlSupportsOrderByUnrelated, true);
    let group_by = [SqlSupportedGroupBy::SqlGroupByUnrelated, SqlSupportedGroupBy::SqlGroupByBeyondSelect];
    info.append(SqlInfo::SqlSupportedGroupBy, bits(group_by.map(|kind| kind as i32)));
    info.append(SqlInfo::SqlSupportsLikeEscapeClause, true);
    info.append(SqlInfo::SqlSupportsNonNullableColumns, true);
    // As PostgreSQL's own driver reports for PostgreSQL: the next levels require what neither has.
    info.append(SqlInfo::SqlSupportedGrammar, bits([SupportedSqlGrammar::SqlMinimumGrammar as i32]));
    info.append(SqlInfo::SqlAnsi92SupportedLevel, bits([ANSI92_ENTRY_SQL]));
    info.append(SqlInfo::SqlSupportsIntegrityEnhancementFacility, true);
    // In the text of Flight SQL this is a single level, but its client arrow-java reads a set of bits.
    let outer =
        [SqlOuterJoinsSupportLevel::SqlLimitedOuterJoins, SqlOuterJoinsSupportLevel::SqlFullOuterJoins];
    info.append(SqlInfo::SqlOuterJoinsSupportLevel, bits(outer.map(|level| level as i32)));
    info.append(SqlInfo::SqlSchemaTerm, "schema");
    info.append(SqlInfo::SqlProcedureTerm, "procedure");
    info.append(SqlInfo::SqlCatalogTerm, "database");
    info.append(SqlInfo::SqlCatalogAtStart, true);
    // There are no procedures and no privileges, and one catalog, which need not be named.
    let in_schemas = SqlSupportedElementActions::SqlElementInIndexDefinitions;
    info.append(SqlInfo::SqlSchemasSupportedActions, bits([in_schemas as i32]));
    info.append(SqlInfo::SqlCatalogsSupportedActions, bits([]));
    info.append(SqlInfo::SqlSupportedPositionedCommands, bits([]));
    info.append(SqlInfo::SqlSelectForUpdateSupported, true);
    info.append(SqlInfo::SqlStoredProceduresSupported, false);
    let subqueries = [
        SqlSupportedSubqueries::SqlSubqueriesInComparisons,
        SqlSupportedSubqueries::SqlSubqueriesInExists,
        SqlSupportedSubqueries::SqlSubqueriesInIns,
        SqlSupportedSubqueries::SqlSubqueriesInQuantifieds,
    ];
    info.append(SqlInfo::SqlSupportedSubqueries, bits(subqueries.map(|place| place as i32)));
    info.append(SqlInfo::SqlCorrelatedSubqueriesSupported, true);
    let unions = [SqlSupportedUnions::SqlUnion, SqlSupportedUnions::SqlUnionAll];
    info.append(SqlInfo::SqlSupportedUnions, bits(unions.map(|union| union as i32)));
    // Statements that run at once. Transactions have places of their own.
    info.append(SqlInfo::SqlMaxStatements, max_statements);
    UNBOUNDED.into_iter().for_each(|what| info.append(what, 0i64));
    info.append(SqlInfo::SqlMaxRowSizeIncludesBlobs, true);
    info.append(SqlInfo::SqlMaxColumnsInIndex, INDEX_COLUMNS);
    info.append(SqlInfo::SqlMaxColumnsInTable, TABLE_COLUMNS);
    info.append(
        SqlInfo::SqlDefaultTransactionIsolation,
        i64::from(SqlTransactionIsolationLevel::SqlTransactionSerializable as i32),
    );
    info.append(SqlInfo::SqlTransactionsSupported, true);
    let levels = [
        SqlTransactionIsolationLevel::SqlTransactionReadCommitted,
        SqlTransactionIsolationLevel::SqlTransactionRepeatableRead,
        SqlTransactionIsolationLevel::SqlTransactionSerializable,
    ];
    info.append(SqlInfo::SqlSupportedTransactionsIsolationLevels, bits(levels.map(|level| level as i32)));
    info.append(SqlInfo::SqlDataDefinitionCausesTransactionCommit, false);
    info.append(SqlInfo::SqlDataDefinitionsInTransactionsIgnored, false);
    // Rows are sent once, in their order, and cannot be changed.
    let forward_only = SqlSupportedResultSetType::SqlResultSetTypeForwardOnly;
    let read_only = SqlSupportedResultSetConcurrency::SqlResultSetConcurrencyReadOnly;
    info.append(SqlInfo::SqlSupportedResultSetTypes, bits([forward_only as i32]));
    info.append(SqlInfo::SqlSupportedConcurrenciesForResultSetForwardOnly, bits([read_only as i32]));
    for others in [
        SqlInfo::SqlSupportedConcurrenciesForResultSetUnspecified,
        SqlInfo::SqlSupportedConcurrenciesForResultSetScrollSensitive,
        SqlInfo::SqlSupportedConcurrenciesForResultSetScrollInsensitive,
    ] {
        info.append(others, bits([]));
    }
    info.append(SqlInfo::SqlBatchUpdatesSupported, true);
    info.append(SqlInfo::SqlSavepointsSupported, true);
    info.append(SqlInfo::SqlNamedParametersSupported, false);
    info.append(SqlInfo::SqlLocatorsUpdateCopy, false);
    info.append(SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported, false);
    // No conversion is listed, since the standard's list is too short: PostgreSQL's CAST has many more.
    info.append(SqlInfo::SqlSupportsConvert, HashMap::<i32, Vec<i32>>::new());
    info.build().expect("the facts have the types that Flight SQL requires")
}

/// The types.
pub(super) fn types() -> &'static XdbcTypeInfoData {
    static TYPES: OnceLock<XdbcTypeInfoData> = OnceLock::new();
    TYPES.get_or_init(|| {
        let mut builder = XdbcTypeInfoDataBuilder::new();
        TYPE_ROWS.iter().for_each(|row| builder.append(row.info()));
        builder.build().expect("the types are described as Flight SQL requires")
    })
}

struct TypeRow {
    ty: TypeId,
    number: XdbcDataType,
    /// Digits, bits or characters, as the standard counts for the type.
    size: Option<i32>,
    parameters: &'static [&'static str],
    quoted: bool,
}

const fn row(ty: TypeId, number: XdbcDataType, size: i32) -> TypeRow {
    TypeRow { ty, number, size: Some(size), parameters: &[], quoted: false }
}

const fn quoted(ty: TypeId, number: XdbcDataType, size: Option<i32>) -> TypeRow {
    TypeRow { ty, number, size, parameters: &[], quoted: true }
}

const TYPE_ROWS: [TypeRow; 17] = [
    row(TypeId::BOOL, XdbcDataType::XdbcBit, 1),
    row(TypeId::INT2, XdbcDataType::XdbcSmallint, 5),
    row(TypeId::INT4, XdbcDataType::XdbcInteger, 10),
    row(TypeId::INT8, XdbcDataType::XdbcBigint, 19),
    row(TypeId::FLOAT4, XdbcDataType::XdbcReal, 7),
    row(TypeId::FLOAT8, XdbcDataType::XdbcDouble, 15),
    TypeRow {
        ty: TypeId::NUMERIC,
        number: XdbcDataType::XdbcNumeric,
        size: Some(38),
        parameters: &["precision", "scale"],
        quoted: false,
    },
    quoted(TypeId::TEXT, XdbcDataType::XdbcLongvarchar, None),
    TypeRow {
        ty: TypeId::VARCHAR,
        number: XdbcDataType::XdbcVarchar,
        size: None,
        parameters: &["length"],
        quoted: true,
    },
    TypeRow {
        ty: TypeId::BPCHAR,
        number: XdbcDataType::XdbcChar,
        size: None,
        parameters: &["length"],
        quoted: true,
    },
    quoted(TypeId::BYTEA, XdbcDataType::XdbcVarbinary, None),
    quoted(TypeId::DATE, XdbcDataType::XdbcDate, Some(10)),
    quoted(TypeId::TIME, XdbcDataType::XdbcTime, Some(15)),
    quoted(TypeId::TIMESTAMP, XdbcDataType::XdbcTimestamp, Some(26)),
    quoted(TypeId::TIMESTAMPTZ, XdbcDataType::XdbcTimestamp, Some(32)),
    quoted(TypeId::INTERVAL, XdbcDataType::XdbcInterval, None),
    quoted(TypeId::UUID, XdbcDataType::XdbcBinary, Some(16)),
];

impl TypeRow {
    fn info(&self) -> XdbcTypeInfo {
        let described = Type::new(self.ty).info().expect("the type is built in");
        let is_number = described.category == b'N';
        let name = described.sql_name.to_owned();
        let (sql_data_type, datetime_subcode) = match self.ty {
            // The first code is that of a date, whatever its name.
            TypeId::DATE => (XdbcDataType::XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeYear)),
            TypeId::TIME => (XdbcDataType::XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeTime)),
            TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ => {
                (XdbcDataType::XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeTimestamp))
            }
            _ => (self.number, None),
        };
        let scale = self.ty == TypeId::NUMERIC;
        XdbcTypeInfo {
            local_type_name: Some(name.clone()),
            type_name: name,
            data_type: self.number,
            column_size: self.size,
            literal_prefix: self.quoted.then(|| "'".to_owned()),
            literal_suffix: self.quoted.then(|| "'".to_owned()),
            create_params: (!self.parameters.is_empty())
                .then(|| self.parameters.iter().map(|name| (*name).to_owned()).collect()),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: described.category == b'S',
            searchable: Searchable::Full,
            unsigned_attribute: is_number.then_some(false),
            fixed_prec_scale: false,
            auto_increment: is_number.then_some(false),
            minimum_scale: scale.then_some(0),
            maximum_scale: scale.then_some(38),
            sql_data_type,
            datetime_subcode,
            num_prec_radix: is_number.then_some(10),
            interval_precision: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reported_arrow_version_is_that_of_the_build() {
        let lock = include_str!("../../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"arrow-flight\"\nversion = \"{ARROW_VERSION}\"")));
    }

    #[test]
    fn every_type_is_described() {
        assert_eq!(types().record_batch(None).unwrap().num_rows(), TYPE_ROWS.len());
    }
}
