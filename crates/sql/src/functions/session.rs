//! Functions that ask the session: who, where, which settings, sequences.
//!
//! What the plan is bound for anyway (user, database, search path) becomes a literal-like function
//! at binding; what changes while the plan is kept is asked when it runs.

use crate::session_facts::SessionFacts;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use firn_base::sync::Arc;
use firn_base::{Error, SqlState, SqlType, Value};
use firn_exec::function::{Surroundings, ValueFunction};
use firn_exec::session::SessionServices;
use firn_exec::sleep;

/// A function of this file by its name.
pub fn function(name: &str, facts: &SessionFacts) -> Option<Arc<ScalarUDF>> {
    let constant = |name: &'static str, value: String| {
        let signature = Signature::nullary(Volatility::Stable);
        Some(Arc::new(ScalarUDF::from(Constant { name, value, signature })))
    };
    match name {
        "current_user" => constant("current_user", facts.user.clone()),
        "session_user" => constant("session_user", facts.user.clone()),
        "user" => constant("user", facts.user.clone()),
        "current_role" => constant("current_role", facts.user.clone()),
        "current_database" => constant("current_database", facts.database.clone()),
        "current_catalog" => constant("current_catalog", facts.database.clone()),
        "current_schema" => {
            let first = facts.search_path.iter().find(|schema| !schema.starts_with('$'));
            constant("current_schema", first.cloned().unwrap_or_else(|| "public".to_owned()))
        }
        "pg_sleep" | "pg_sleep_for" | "pg_sleep_until" => sleep::function(name),
        "version" => constant("version", version()),
        _ => FUNCTIONS.iter().find(|function| function.name == name).map(ValueFunction::udf),
    }
}

/// What `version()` says: clients read the number after the first word.
pub(crate) fn version() -> String {
    format!("PostgreSQL 15.0 (FirnDB {})", env!("CARGO_PKG_VERSION"))
}

/// A function without arguments that yields one text.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Constant {
    name: &'static str,
    value: String,
    signature: Signature,
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(Some(self.value.clone()))))
    }
}

fn text(arguments: &[Option<SqlType>]) -> bool {
    arguments.iter().all(|argument| argument.is_none_or(SqlType::is_string))
}

fn services<'a>(surroundings: &Surroundings<'a>) -> firn_base::Result<&'a Arc<dyn SessionServices>> {
    surroundings.services.ok_or_else(|| {
        Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "no session runs this expression")
    })
}

fn string(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        other => panic!("{other:?} was coerced to text"),
    }
}

/// Functions that yield what a sequence shows as a relation: what it gave last, and whether it gave
/// anything yet. No function that a user writes is called so.
pub const SEQUENCE_FUNCTIONS: [&str; 2] = ["last_value of", "is_called of"];

static FUNCTIONS: &[ValueFunction] = &[
    ValueFunction {
        name: SEQUENCE_FUNCTIONS[0],
        resolve: |_| Some((vec![SqlType::Text], SqlType::BigInt)),
        compute: |values, surroundings| {
            let (last, _) = services(surroundings)?.sequence_state(string(&values[0]))?;
            Ok(Value::BigInt(last))
        },
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: SEQUENCE_FUNCTIONS[1],
        resolve: |_| Some((vec![SqlType::Text], SqlType::Boolean)),
        compute: |values, surroundings| {
            let (_, called) = services(surroundings)?.sequence_state(string(&values[0]))?;
            Ok(Value::Boolean(called))
        },
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "nextval",
        resolve: |arguments| {
            (arguments.len() == 1 && text(arguments)).then(|| (vec![SqlType::Text], SqlType::BigInt))
        },
        compute: |values, surroundings| {
            services(surroundings)?.next_value(string(&values[0])).map(Value::BigInt)
        },
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "currval",
        resolve: |arguments| {
            (arguments.len() == 1 && text(arguments)).then(|| (vec![SqlType::Text], SqlType::BigInt))
        },
        compute: |values, surroundings| {
            services(surroundings)?.current_value(string(&values[0])).map(Value::BigInt)
        },
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "lastval",
        resolve: |arguments| arguments.is_empty().then(|| (vec![], SqlType::BigInt)),
        compute: |_, surroundings| services(surroundings)?.last_value().map(Value::BigInt),
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "setval",
        resolve: |arguments| match arguments.len() {
            2 => Some((vec![SqlType::Text, SqlType::BigInt], SqlType::BigInt)),
            3 => Some((vec![SqlType::Text, SqlType::BigInt, SqlType::Boolean], SqlType::BigInt)),
            _ => None,
        },
        compute: |values, surroundings| {
            let Value::BigInt(value) = values[1] else { panic!("coerced to bigint") };
            let called = !matches!(values.get(2), Some(Value::Boolean(false)));
            services(surroundings)?.set_value(string(&values[0]), value, called)?;
            Ok(Value::BigInt(value))
        },
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "current_setting",
        resolve: |arguments| match arguments.len() {
            1 => Some((vec![SqlType::Text], SqlType::Text)),
            2 => Some((vec![SqlType::Text, SqlType::Boolean], SqlType::Text)),
            _ => None,
        },
        compute: |values, surroundings| {
            let name = string(&values[0]);
            match services(surroundings)?.setting(name) {
                Some(setting) => Ok(Value::Text(setting)),
                None if matches!(values.get(1), Some(Value::Boolean(true))) => Ok(Value::Null),
                None => Err(Error::new(
                    SqlState::UNDEFINED_OBJECT,
                    format!("unrecognized configuration parameter \"{name}\""),
                )),
            }
        },
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "set_config",
        resolve: |arguments| {
            (arguments.len() == 3)
                .then(|| (vec![SqlType::Text, SqlType::Text, SqlType::Boolean], SqlType::Text))
        },
        compute: |values, surroundings| {
            let local = matches!(values[2], Value::Boolean(true));
            services(surroundings)?
                .set_setting(string(&values[0]), string(&values[1]), local)
                .map(Value::Text)
        },
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "gen_random_uuid",
        resolve: |arguments| arguments.is_empty().then(|| (vec![], SqlType::Uuid)),
        compute: |_, _| {
            let mut bytes: [u8; 16] = firn_base::random::secret_bytes();
            // Version 4, variant 1.
            bytes[6] = bytes[6] & 0x0f | 0x40;
            bytes[8] = bytes[8] & 0x3f | 0x80;
            Ok(Value::Uuid(bytes))
        },
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "pg_backend_pid",
        resolve: |arguments| arguments.is_empty().then(|| (vec![], SqlType::Integer)),
        compute: |_, surroundings| Ok(Value::Integer(services(surroundings)?.session()? as i32)),
        // Plans are shared by sessions.
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "pg_current_xact_id",
        resolve: nothing_to_bigint,
        compute: |_, surroundings| transaction_number(surroundings, true),
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "txid_current",
        resolve: nothing_to_bigint,
        compute: |_, surroundings| transaction_number(surroundings, true),
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "pg_current_xact_id_if_assigned",
        resolve: nothing_to_bigint,
        compute: |_, surroundings| transaction_number(surroundings, false),
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "txid_current_if_assigned",
        resolve: nothing_to_bigint,
        compute: |_, surroundings| transaction_number(surroundings, false),
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "pg_cancel_backend",
        resolve: |arguments| (arguments.len() == 1).then(|| (vec![SqlType::Integer], SqlType::Boolean)),
        compute: |values, surroundings| interrupt(values, surroundings, false),
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    ValueFunction {
        name: "pg_terminate_backend",
        resolve: |arguments| (arguments.len() == 1).then(|| (vec![SqlType::Integer], SqlType::Boolean)),
        compute: |values, surroundings| interrupt(values, surroundings, true),
        volatility: Volatility::Volatile,
        takes_null: false,
    },
];

fn nothing_to_bigint(arguments: &[Option<SqlType>]) -> Option<(Vec<SqlType>, SqlType)> {
    arguments.is_empty().then(|| (vec![], SqlType::BigInt))
}

/// The transaction's number; NULL if it has none and draws none.
fn transaction_number(surroundings: &Surroundings<'_>, draws: bool) -> firn_base::Result<Value> {
    Ok(services(surroundings)?.transaction_number(draws)?.map_or(Value::Null, Value::BigInt))
}

/// Stops what another session runs, or ends it.
fn interrupt(values: &[Value], surroundings: &Surroundings<'_>, ends: bool) -> firn_base::Result<Value> {
    let Value::Integer(session) = values[0] else { unreachable!("it is resolved to take an integer") };
    services(surroundings)?.interrupt(session, ends).map(Value::Boolean)
}
