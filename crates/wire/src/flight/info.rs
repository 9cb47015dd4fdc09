//! What the server says about itself: facts about its SQL, and its types.

use std::collections::HashMap;

use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo, SqlNullOrdering, SqlSupportedCaseSensitivity, SqlSupportedTransaction,
    SqlTransactionIsolationLevel, XdbcDataType, XdbcDatetimeSubcode,
};
use firn_base::SqlType;
use firn_base::sync::OnceLock;

/// The release of PostgreSQL whose dialect is spoken is in `version()`; this is ours.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of Arrow that results are encoded with.
const ARROW_VERSION: &str = "59.3.2";

/// The facts, for who only wants to know their types.
pub(super) fn sql_info() -> &'static SqlInfoData {
    static INFO: OnceLock<SqlInfoData> = OnceLock::new();
    INFO.get_or_init(|| sql_info_with_timeout(0))
}

/// The facts.
pub(super) fn sql_info_with_timeout(transaction_timeout_ms: i32) -> SqlInfoData {
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
    info.append(SqlInfo::SqlSearchStringEscape, "\\");
    info.append(SqlInfo::SqlSupportsColumnAliasing, true);
    info.append(SqlInfo::SqlNullPlusNullIsNull, true);
    info.append(SqlInfo::SqlSupportsTableCorrelationNames, true);
    info.append(SqlInfo::SqlSupportsDifferentTableCorrelationNames, false);
    info.append(SqlInfo::SqlSupportsExpressionsInOrderBy, true);
    info.append(SqlInfo::SqlSupportsOrderByUnrelated, true);
    info.append(SqlInfo::SqlSupportsLikeEscapeClause, true);
    info.append(SqlInfo::SqlSupportsNonNullableColumns, true);
    info.append(SqlInfo::SqlSupportsIntegrityEnhancementFacility, true);
    info.append(SqlInfo::SqlSchemaTerm, "schema");
    info.append(SqlInfo::SqlProcedureTerm, "procedure");
    info.append(SqlInfo::SqlCatalogTerm, "database");
    info.append(SqlInfo::SqlCatalogAtStart, true);
    info.append(SqlInfo::SqlSelectForUpdateSupported, true);
    info.append(SqlInfo::SqlStoredProceduresSupported, false);
    info.append(SqlInfo::SqlCorrelatedSubqueriesSupported, true);
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
    let levels = levels.iter().fold(0i32, |bits, level| bits | 1 << (*level as i32));
    info.append(SqlInfo::SqlSupportedTransactionsIsolationLevels, levels);
    info.append(SqlInfo::SqlDataDefinitionCausesTransactionCommit, false);
    info.append(SqlInfo::SqlDataDefinitionsInTransactionsIgnored, false);
    info.append(SqlInfo::SqlBatchUpdatesSupported, true);
    info.append(SqlInfo::SqlSavepointsSupported, true);
    info.append(SqlInfo::SqlNamedParametersSupported, false);
    info.append(SqlInfo::SqlLocatorsUpdateCopy, false);
    info.append(SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported, false);
    // No conversion is named by the standard's list alone: PostgreSQL's CAST knows many more.
    info.append(SqlInfo::SqlSupportsConvert, HashMap::<i32, Vec<i32>>::new());
    info.build().expect("the facts are of the types that Flight SQL wants")
}

/// The types.
pub(super) fn types() -> &'static XdbcTypeInfoData {
    static TYPES: OnceLock<XdbcTypeInfoData> = OnceLock::new();
    TYPES.get_or_init(|| {
        let mut builder = XdbcTypeInfoDataBuilder::new();
        TYPE_ROWS.iter().for_each(|row| builder.append(row.info()));
        builder.build().expect("the types are described as Flight SQL wants them")
    })
}

struct TypeRow {
    ty: SqlType,
    number: XdbcDataType,
    /// Digits, bits or characters, as the standard counts for the type.
    size: Option<i32>,
    parameters: &'static [&'static str],
    quoted: bool,
}

const fn row(ty: SqlType, number: XdbcDataType, size: i32) -> TypeRow {
    TypeRow { ty, number, size: Some(size), parameters: &[], quoted: false }
}

const fn quoted(ty: SqlType, number: XdbcDataType, size: Option<i32>) -> TypeRow {
    TypeRow { ty, number, size, parameters: &[], quoted: true }
}

const TYPE_ROWS: [TypeRow; 17] = [
    row(SqlType::Boolean, XdbcDataType::XdbcBit, 1),
    row(SqlType::SmallInt, XdbcDataType::XdbcSmallint, 5),
    row(SqlType::Integer, XdbcDataType::XdbcInteger, 10),
    row(SqlType::BigInt, XdbcDataType::XdbcBigint, 19),
    row(SqlType::Real, XdbcDataType::XdbcReal, 7),
    row(SqlType::Double, XdbcDataType::XdbcDouble, 15),
    TypeRow {
        ty: SqlType::NUMERIC,
        number: XdbcDataType::XdbcNumeric,
        size: Some(38),
        parameters: &["precision", "scale"],
        quoted: false,
    },
    quoted(SqlType::Text, XdbcDataType::XdbcLongvarchar, None),
    TypeRow {
        ty: SqlType::Varchar(None),
        number: XdbcDataType::XdbcVarchar,
        size: None,
        parameters: &["length"],
        quoted: true,
    },
    TypeRow {
        ty: SqlType::Char(1),
        number: XdbcDataType::XdbcChar,
        size: None,
        parameters: &["length"],
        quoted: true,
    },
    quoted(SqlType::Bytea, XdbcDataType::XdbcVarbinary, None),
    quoted(SqlType::Date, XdbcDataType::XdbcDate, Some(10)),
    quoted(SqlType::Time, XdbcDataType::XdbcTime, Some(15)),
    quoted(SqlType::Timestamp, XdbcDataType::XdbcTimestamp, Some(26)),
    quoted(SqlType::TimestampTz, XdbcDataType::XdbcTimestamp, Some(32)),
    quoted(SqlType::Interval, XdbcDataType::XdbcInterval, None),
    quoted(SqlType::Uuid, XdbcDataType::XdbcBinary, Some(16)),
];

impl TypeRow {
    fn info(&self) -> XdbcTypeInfo {
        let is_number = matches!(
            self.ty,
            SqlType::SmallInt
                | SqlType::Integer
                | SqlType::BigInt
                | SqlType::Real
                | SqlType::Double
                | SqlType::Numeric { .. }
        );
        let name = match self.ty {
            SqlType::Char(_) => "character".to_owned(),
            ty => ty.to_string(),
        };
        let (sql_data_type, datetime_subcode) = match self.ty {
            // The first code is that of a date, by whatever name.
            SqlType::Date => (XdbcDataType::XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeYear)),
            SqlType::Time => (XdbcDataType::XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeTime)),
            SqlType::Timestamp | SqlType::TimestampTz => {
                (XdbcDataType::XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeTimestamp))
            }
            _ => (self.number, None),
        };
        let scale = matches!(self.ty, SqlType::Numeric { .. });
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
            case_sensitive: self.ty.is_string(),
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
    fn the_arrow_version_told_is_the_one_that_is_built_with() {
        let lock = include_str!("../../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"arrow-flight\"\nversion = \"{ARROW_VERSION}\"")));
    }

    #[test]
    fn every_type_is_described() {
        assert_eq!(types().record_batch(None).unwrap().num_rows(), TYPE_ROWS.len());
    }
}
