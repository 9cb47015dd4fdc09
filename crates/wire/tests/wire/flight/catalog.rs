//! The catalog calls.

use arrow_array::{Array, ArrayRef};
use arrow_cast::display::array_value_to_string;
use arrow_flight::IpcMessage;
use arrow_flight::sql::{
    CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo, SqlInfo,
};
use arrow_schema::{DataType, Schema};

use super::*;

/// Cells of the named columns as text.
fn cells(batches: &[RecordBatch], columns: &[&str]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cell = |name: &&str| {
                let column: &ArrayRef = batch.column_by_name(name).unwrap();
                match column.is_null(row) {
                    true => "NULL".to_owned(),
                    false => array_value_to_string(column, row).unwrap(),
                }
            };
            rows.push(columns.iter().map(cell).collect());
        }
    }
    rows
}

fn shop() -> Fixture {
    let fixture = serve();
    fixture.execute(
        "CREATE SCHEMA shop;
         CREATE TABLE shop.customers (region integer, id integer, name varchar(20) NOT NULL, PRIMARY KEY (region, id));
         CREATE TABLE shop.orders (number bigint PRIMARY KEY, r integer, c integer, note text,
             CONSTRAINT of_customer FOREIGN KEY (r, c) REFERENCES shop.customers (region, id) ON DELETE CASCADE);
         CREATE TABLE plain (a numeric(8,3));
         CREATE VIEW seen AS SELECT a FROM plain",
    );
    fixture
}

#[test]
fn tables_are_listed_by_schema_pattern_and_kind() {
    let fixture = shop();
    fixture.run(async {
        let mut client = fixture.client().await;
        let info = client.get_catalogs().await.unwrap();
        let rows = fetch(&mut client, info).await.unwrap();
        assert_eq!(cells(&rows, &["catalog_name"]), [["firn"]]);

        let request = CommandGetDbSchemas { catalog: None, db_schema_filter_pattern: Some("%o%".into()) };
        let info = client.get_db_schemas(request).await.unwrap();
        let rows = fetch(&mut client, info).await.unwrap();
        let schemas = cells(&rows, &["db_schema_name"]);
        assert!(schemas.contains(&vec!["shop".to_owned()]) && !schemas.contains(&vec!["public".to_owned()]));

        let info = client.get_table_types().await.unwrap();
        let rows = fetch(&mut client, info).await.unwrap();
        assert_eq!(cells(&rows, &["table_type"]), [["SYSTEM TABLE"], ["SYSTEM VIEW"], ["TABLE"], ["VIEW"]]);

        let tables = |pattern: Option<&str>, kinds: &[&str], include_schema| CommandGetTables {
            catalog: Some("firn".into()),
            db_schema_filter_pattern: None,
            table_name_filter_pattern: pattern.map(str::to_owned),
            table_types: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
            include_schema,
        };
        let info = client.get_tables(tables(None, &["TABLE", "VIEW"], true)).await.unwrap();
        let described = info.clone().try_decode_schema().unwrap();
        let rows = fetch(&mut client, info).await.unwrap();
        assert_eq!(described, *rows[0].schema());
        assert_eq!(
            cells(&rows, &["db_schema_name", "table_name", "table_type"]),
            [
                ["public", "plain", "TABLE"],
                ["public", "seen", "VIEW"],
                ["shop", "customers", "TABLE"],
                ["shop", "orders", "TABLE"],
            ]
        );
        let bytes = rows[0].column_by_name("table_schema").unwrap().as_binary::<i32>().value(2).to_vec();
        let schema = Schema::try_from(IpcMessage(bytes.into())).unwrap();
        let fields: Vec<_> =
            schema.fields().iter().map(|field| (field.name().as_str(), field.is_nullable())).collect();
        assert_eq!(fields, [("region", false), ("id", false), ("name", false)]);
        assert_eq!(*schema.field(2).data_type(), DataType::Utf8);

        let info = client.get_tables(tables(Some("pg_cl_ss"), &[], true)).await.unwrap();
        let rows = fetch(&mut client, info).await.unwrap();
        assert_eq!(cells(&rows, &["table_name", "table_type"]), [["pg_class", "SYSTEM TABLE"]]);
        let elsewhere = CommandGetTables { catalog: Some("other".into()), ..tables(None, &[], false) };
        let info = client.get_tables(elsewhere).await.unwrap();
        assert!(cells(&fetch(&mut client, info).await.unwrap(), &["table_name"]).is_empty());
    });
}

#[test]
fn keys_are_listed_with_their_columns_in_order() {
    let fixture = shop();
    fixture.run(async {
        let mut client = fixture.client().await;
        let (catalog, schema) = (None, Some("shop".to_owned()));
        let request = CommandGetPrimaryKeys {
            catalog: catalog.clone(),
            db_schema: schema.clone(),
            table: "customers".into(),
        };
        let info = client.get_primary_keys(request).await.unwrap();
        let rows = fetch(&mut client, info).await.unwrap();
        let columns = ["table_name", "column_name", "key_name", "key_sequence"];
        assert_eq!(
            cells(&rows, &columns),
            [["customers", "region", "customers_pkey", "1"], ["customers", "id", "customers_pkey", "2"]]
        );

        let columns = [
            "pk_table_name",
            "pk_column_name",
            "fk_table_name",
            "fk_column_name",
            "key_sequence",
            "fk_key_name",
            "pk_key_name",
            "update_rule",
            "delete_rule",
        ];
        let expected = [
            ["customers", "region", "orders", "r", "1", "of_customer", "customers_pkey", "3", "0"],
            ["customers", "id", "orders", "c", "2", "of_customer", "customers_pkey", "3", "0"],
        ];
        let request = CommandGetExportedKeys {
            catalog: catalog.clone(),
            db_schema: schema.clone(),
            table: "customers".into(),
        };
        let info = client.get_exported_keys(request).await.unwrap();
        assert_eq!(cells(&fetch(&mut client, info).await.unwrap(), &columns), expected);
        let request = CommandGetImportedKeys {
            catalog: catalog.clone(),
            db_schema: schema.clone(),
            table: "orders".into(),
        };
        let info = client.get_imported_keys(request).await.unwrap();
        assert_eq!(cells(&fetch(&mut client, info).await.unwrap(), &columns), expected);
        let cross = |table: &str| CommandGetCrossReference {
            pk_catalog: None,
            pk_db_schema: Some("shop".into()),
            pk_table: "customers".into(),
            fk_catalog: None,
            fk_db_schema: Some("shop".into()),
            fk_table: table.into(),
        };
        let info = client.get_cross_reference(cross("orders")).await.unwrap();
        assert_eq!(cells(&fetch(&mut client, info).await.unwrap(), &columns), expected);
        let info = client.get_cross_reference(cross("customers")).await.unwrap();
        assert!(cells(&fetch(&mut client, info).await.unwrap(), &columns).is_empty());
    });
}

#[test]
fn the_server_describes_its_features_and_types() {
    let fixture = serve();
    fixture.run(async {
        let mut client = fixture.client().await;
        let asked = vec![SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerTransaction];
        let info = client.get_sql_info(asked).await.unwrap();
        let rows = fetch(&mut client, info).await.unwrap();
        assert_eq!(cells(&rows, &["info_name"]), [["0"], ["8"]]);
        let all = client.get_sql_info(vec![]).await.unwrap();
        let all = cells(&fetch(&mut client, all).await.unwrap(), &["info_name"]).concat();
        // Every fact that Flight SQL defines, except for the supported versions of Substrait.
        let known = (0..=u32::from(u16::MAX)).filter(|number| SqlInfo::try_from(*number as i32).is_ok());
        let substrait =
            [SqlInfo::FlightSqlServerSubstraitMinVersion, SqlInfo::FlightSqlServerSubstraitMaxVersion];
        let expected = known.filter(|number| !substrait.iter().any(|version| *version as u32 == *number));
        assert_eq!(all, expected.map(|number| number.to_string()).collect::<Vec<_>>());
        let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: None }).await.unwrap();
        let rows = fetch(&mut client, info).await.unwrap();
        let names = cells(&rows, &["type_name"]).concat();
        assert!(names.contains(&"numeric".to_owned()) && names.contains(&"uuid".to_owned()), "{names:?}");
        let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: Some(4) }).await.unwrap();
        assert_eq!(cells(&fetch(&mut client, info).await.unwrap(), &["type_name"]), [["integer"]]);
    });
}

#[test]
fn facts_have_the_types_and_bits_that_drivers_expect() {
    let fixture = serve_with(|config| config.max_statements = 7);
    fixture.run(async {
        let mut client = fixture.client().await;
        for (asked, expected) in [
            (SqlInfo::SqlSupportedGroupBy, "{int32_bitmask=3}"),
            (SqlInfo::SqlSupportedGrammar, "{int32_bitmask=1}"),
            (SqlInfo::SqlAnsi92SupportedLevel, "{int32_bitmask=1}"),
            (SqlInfo::SqlOuterJoinsSupportLevel, "{int32_bitmask=6}"),
            (SqlInfo::SqlSchemasSupportedActions, "{int32_bitmask=2}"),
            (SqlInfo::SqlCatalogsSupportedActions, "{int32_bitmask=0}"),
            (SqlInfo::SqlSupportedPositionedCommands, "{int32_bitmask=0}"),
            (SqlInfo::SqlSupportedSubqueries, "{int32_bitmask=15}"),
            (SqlInfo::SqlSupportedUnions, "{int32_bitmask=3}"),
            (SqlInfo::SqlSupportedResultSetTypes, "{int32_bitmask=2}"),
            (SqlInfo::SqlSupportedConcurrenciesForResultSetForwardOnly, "{int32_bitmask=2}"),
            (SqlInfo::SqlSupportedConcurrenciesForResultSetScrollInsensitive, "{int32_bitmask=0}"),
            (SqlInfo::SqlSupportedTransactionsIsolationLevels, "{int32_bitmask=28}"),
            (SqlInfo::SqlDefaultTransactionIsolation, "{bigint_value=4}"),
            (SqlInfo::SqlMaxColumnsInTable, "{bigint_value=1600}"),
            (SqlInfo::SqlMaxColumnsInIndex, "{bigint_value=32}"),
            (SqlInfo::SqlMaxTableNameLength, "{bigint_value=0}"),
            (SqlInfo::SqlMaxStatements, "{bigint_value=7}"),
            (SqlInfo::SqlExtraNameCharacters, "{string_value=$}"),
            (SqlInfo::SqlCorrelatedSubqueriesSupported, "{bool_value=true}"),
        ] {
            let info = client.get_sql_info(vec![asked]).await.unwrap();
            let rows = fetch(&mut client, info).await.unwrap();
            assert_eq!(cells(&rows, &["value"]), [[expected]], "{asked:?}");
        }
    });
}

/// Limits are tested by exceeding them, keywords by quoted names, functions by the absence of an error.
#[test]
fn facts_are_true() {
    let fixture = serve();
    let columns = |count: usize| (0..count).map(|at| format!("c{at}")).collect::<Vec<_>>();
    let table = |count| format!("CREATE TABLE t{count} ({} integer)", columns(count).join(" integer, "));
    let index = |count| format!("CREATE INDEX ON t1600 ({})", columns(count).join(", "));
    let failure = |sql: &str| {
        fixture.locally(|database| database.connect().execute(sql).err().map(|error| error.to_string()))
    };
    for (fits, does_not) in [(table(1600), table(1601)), (index(32), index(33))] {
        assert_eq!(failure(&fits), None);
        assert!(failure(&does_not).is_some_and(|error| error.contains("columns")));
    }
    let long = "n".repeat(1000);
    fixture.execute(&format!("CREATE SCHEMA {long}; CREATE TABLE {long}.{long} ({long}$ integer)"));
    assert_eq!(fixture.number(&format!("SELECT count({long}$) FROM {long}.{long}")), 0);
    let words = fixture.run(async {
        let mut client = fixture.client().await;
        let mut all = Vec::new();
        for asked in [
            SqlInfo::SqlKeywords,
            SqlInfo::SqlNumericFunctions,
            SqlInfo::SqlStringFunctions,
            SqlInfo::SqlSystemFunctions,
            SqlInfo::SqlDatetimeFunctions,
        ] {
            let info = client.get_sql_info(vec![asked]).await.unwrap();
            let text = cells(&fetch(&mut client, info).await.unwrap(), &["value"]).concat().concat();
            let list = text.strip_prefix("{string_list=[").and_then(|rest| rest.strip_suffix("]}"));
            let list: Vec<String> = list.unwrap().split(", ").map(str::to_owned).collect();
            assert!(list.is_sorted(), "{list:?}");
            all.push(list);
        }
        all
    });
    for word in &words[0] {
        let sql = format!("SELECT count(*) FROM (SELECT quote_ident('{word}') AS q) AS s WHERE q LIKE '\"%'");
        assert_eq!(fixture.number(&sql), 1, "{word}");
    }
    // Some are no functions of the catalog but have a syntax of their own.
    for function in words[1..].iter().flatten() {
        let listed = format!("SELECT count(*) FROM pg_proc WHERE proname = '{function}'");
        let error = failure(&format!("SELECT {function}()")).unwrap_or_default();
        assert!(fixture.number(&listed) > 0 || !error.contains("does not exist"), "{function}: {error}");
    }
    assert!(failure("SELECT no_function()").unwrap().contains("does not exist"));
}

/// As programs with JDBC ask for the only table whose name has an underscore.
#[test]
fn a_backslash_makes_a_pattern_character_stand_for_itself() {
    let fixture = serve();
    fixture.execute("CREATE TABLE a_b (x bigint); CREATE TABLE axb (x bigint)");
    fixture.run(async {
        let mut client = fixture.client().await;
        for (pattern, expected) in
            [("a_b", vec!["a_b", "axb"]), (r"a\_b", vec!["a_b"]), (r"a\xb", vec!["axb"])]
        {
            let request = CommandGetTables {
                catalog: None,
                db_schema_filter_pattern: Some("public".into()),
                table_name_filter_pattern: Some(pattern.into()),
                table_types: Vec::new(),
                include_schema: false,
            };
            let info = client.get_tables(request).await.unwrap();
            let rows = fetch(&mut client, info).await.unwrap();
            let found: Vec<String> = cells(&rows, &["table_name"]).into_iter().flatten().collect();
            assert_eq!(found, expected, "{pattern}");
        }
    });
}
