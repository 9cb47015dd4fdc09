//! The functions that tests use, with the names, oids and facts of PostgreSQL's.

use crate::function::{Facts, Function, FunctionKind, Functions, Strategy, Volatility, is_polymorphic};
use firn_base::{Type, TypeId, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

/// A registry of a few functions.
pub struct TestFunctions;

impl Functions for TestFunctions {
    fn named(&self, name: &str, arguments: &[Type]) -> Option<Function> {
        ALL.by_name.get(name)?.iter().find(|function| takes(function, arguments)).cloned()
    }

    fn operator(&self, symbol: &str, arguments: &[Type]) -> Option<Function> {
        ALL.by_operator.get(symbol)?.iter().find(|function| takes(function, arguments)).cloned()
    }
}

fn takes(function: &Function, arguments: &[Type]) -> bool {
    let fits = |(index, ty): (usize, &Type)| {
        function.argument(index).is_some_and(|id| id == ty.id || is_polymorphic(id))
    };
    function.arguments.len() == arguments.len() && arguments.iter().enumerate().all(fits)
}

struct All {
    by_name: HashMap<String, Vec<Function>>,
    by_operator: HashMap<String, Vec<Function>>,
}

const BOOL: TypeId = TypeId::BOOL;
const INT4: TypeId = TypeId::INT4;
const INT8: TypeId = TypeId::INT8;
const TEXT: TypeId = TypeId::TEXT;

/// Name, operator, oid, arguments, result, can fail.
type Entry = (&'static str, &'static str, u32, &'static [TypeId], TypeId, bool);

const SCALARS: &[Entry] = &[
    ("int4eq", "=", 65, &[INT4, INT4], BOOL, false),
    ("int4ne", "<>", 144, &[INT4, INT4], BOOL, false),
    ("int4lt", "<", 66, &[INT4, INT4], BOOL, false),
    ("int4le", "<=", 149, &[INT4, INT4], BOOL, false),
    ("int4gt", ">", 147, &[INT4, INT4], BOOL, false),
    ("int4ge", ">=", 150, &[INT4, INT4], BOOL, false),
    ("int8eq", "=", 467, &[INT8, INT8], BOOL, false),
    ("int8ne", "<>", 468, &[INT8, INT8], BOOL, false),
    ("int8lt", "<", 469, &[INT8, INT8], BOOL, false),
    ("int8le", "<=", 471, &[INT8, INT8], BOOL, false),
    ("int8gt", ">", 470, &[INT8, INT8], BOOL, false),
    ("int8ge", ">=", 472, &[INT8, INT8], BOOL, false),
    ("texteq", "=", 67, &[TEXT, TEXT], BOOL, false),
    ("text_lt", "<", 740, &[TEXT, TEXT], BOOL, false),
    ("booleq", "=", 60, &[BOOL, BOOL], BOOL, false),
    ("int4pl", "+", 177, &[INT4, INT4], INT4, false),
    ("int4mi", "-", 181, &[INT4, INT4], INT4, false),
    ("int4mul", "*", 141, &[INT4, INT4], INT4, false),
    ("int4div", "/", 154, &[INT4, INT4], INT4, true),
    ("int4um", "-", 212, &[INT4], INT4, false),
    ("int8pl", "+", 463, &[INT8, INT8], INT8, false),
    ("int8mi", "-", 464, &[INT8, INT8], INT8, false),
    ("int8mul", "*", 465, &[INT8, INT8], INT8, false),
    ("int8", "", 481, &[INT4], INT8, false),
    ("textcat", "||", 1258, &[TEXT, TEXT], TEXT, false),
    ("numeric_eq", "=", 1718, &[TypeId::NUMERIC, TypeId::NUMERIC], BOOL, false),
    ("scale", "", 3281, &[TypeId::NUMERIC], INT4, false),
    ("pg_backend_pid", "", 2026, &[], INT4, false),
];

static ALL: LazyLock<All> = LazyLock::new(|| {
    let mut all = All { by_name: HashMap::new(), by_operator: HashMap::new() };
    let mut add = |facts: Facts| {
        let function = Function::new(facts);
        if let Some(symbol) = &function.operator {
            all.by_operator.entry(symbol.to_string()).or_default().push(function.clone());
        }
        all.by_name.entry(function.name.to_string()).or_default().push(function);
    };
    let base = |name: &str, oid, arguments: &[TypeId], result| Facts {
        oid,
        name: name.into(),
        operator: None,
        kind: FunctionKind::Scalar,
        arguments: arguments.into(),
        variadic: false,
        takes_variadic_array: false,
        result,
        volatility: Volatility::Immutable,
        strict: true,
        may_be_null: false,
        can_fail: false,
        cannot_fail: None,
        strategy: None,
        over_nothing: None,
    };
    for &(name, symbol, oid, arguments, result, can_fail) in SCALARS {
        let strategy = match symbol {
            "=" => Some(Strategy::Equal),
            "<>" => Some(Strategy::NotEqual),
            "<" => Some(Strategy::Less),
            "<=" => Some(Strategy::LessOrEqual),
            ">" => Some(Strategy::Greater),
            ">=" => Some(Strategy::GreaterOrEqual),
            _ => None,
        };
        let operator = (!symbol.is_empty()).then(|| symbol.into());
        let volatility = if arguments.is_empty() { Volatility::Stable } else { Volatility::Immutable };
        add(Facts { operator, can_fail, strategy, volatility, ..base(name, oid, arguments, result) });
    }
    let volatile = Volatility::Volatile;
    add(Facts { volatility: volatile, ..base("nextval", 1574, &[TypeId::REGCLASS], INT8) });
    let set = FunctionKind::Set;
    add(Facts { kind: set, ..base("generate_series", 1067, &[INT4, INT4], INT4) });
    add(Facts { kind: set, may_be_null: true, ..base("unnest", 2331, &[TypeId::INT4_ARRAY], INT4) });
    let aggregate = |name, oid, arguments, result, over_nothing: Value| Facts {
        kind: FunctionKind::Aggregate,
        strict: false,
        may_be_null: over_nothing == Value::Null,
        over_nothing: Some(over_nothing),
        ..base(name, oid, arguments, result)
    };
    add(aggregate("count", 2803, &[], INT8, Value::BigInt(0)));
    add(aggregate("count", 2147, &[TypeId::ANY], INT8, Value::BigInt(0)));
    add(aggregate("sum", 2108, &[INT4], INT8, Value::Null));
    add(aggregate("min", 2132, &[INT4], INT4, Value::Null));
    add(aggregate("max", 2116, &[INT4], INT4, Value::Null));
    add(aggregate("array_agg", 2335, &[INT4], TypeId::INT4_ARRAY, Value::Null));
    // One whose value over nothing the planner is not told.
    let unknown = aggregate("counted", 90_002, &[INT4], INT8, Value::BigInt(0));
    add(Facts { over_nothing: None, ..unknown });
    let window = |name, oid, result| Facts {
        kind: FunctionKind::Window,
        strict: false,
        ..base(name, oid, &[], result)
    };
    add(window("row_number", 3100, INT8));
    add(window("rank", 3101, INT8));
    add(window("dense_rank", 3102, INT8));
    all
});
