//! The functions of `information_schema`: clients call them to expand vectors and to get the sizes of types.

use firn_base::sync::Arc;
use firn_base::{Result, Type, TypeId};
use firn_vector::builder::Builder;
use firn_vector::kernel::scalar::scalar;
use firn_vector::kernel::{Arguments, Call, Outcome, Set, SetKernel, Text};
use firn_vector::lists::Record;
use firn_vector::registry::{
    Body, Function, FunctionId, Kernels, Mode, Parallel, Parameter, RegistryBuilder, Volatility,
};
use firn_vector::{Datum, Vector};

const SCHEMA: &str = "information_schema";

/// `atttypid` and `atttypmod` in a row of pg_attribute.
const PLACE_OF_TYPE: usize = 2;
const PLACE_OF_MODIFIER: usize = 8;
/// `typtype`, `typbasetype` and `typtypmod` in a row of pg_type.
const PLACE_OF_KIND: usize = 6;
const PLACE_OF_BASE: usize = 25;
const PLACE_OF_BASE_MODIFIER: usize = 26;

/// Adds them, with PostgreSQL's oids.
pub(crate) fn register(builder: &mut RegistryBuilder) {
    builder.add(Function {
        id: FunctionId(13_208),
        schema: Some(SCHEMA.into()),
        name: "_pg_expandarray".into(),
        parameters: [
            (TypeId::ANYARRAY, None, Mode::In),
            (TypeId::ANYELEMENT, Some("x"), Mode::Out),
            (TypeId::INT4, Some("n"), Mode::Out),
        ]
        .into_iter()
        .map(|(ty, name, mode)| Parameter { ty, name: name.map(Arc::from), mode, default: None })
        .collect(),
        result: TypeId::RECORD,
        volatility: Volatility::Immutable,
        is_strict: true,
        parallel: Parallel::Safe,
        may_be_null: false,
        can_fail: false,
        cannot_fail: None,
        body: Body::Set(Arc::new(ExpandArray)),
    });
    // The type of a column, or the base type of its domain: from rows of pg_attribute and of pg_type, by the positions of their fields.
    fn of_domain(ty: &Record<'_>) -> bool {
        ty.len() > PLACE_OF_BASE_MODIFIER && matches!(ty.get(PLACE_OF_KIND).1, Datum::Text("d"))
    }
    fn field(row: &Record<'_>, place: usize) -> Option<i64> {
        match (place < row.len()).then(|| row.get(place).1)? {
            Datum::UInt32(oid) => Some(oid.into()),
            Datum::Int32(number) => Some(number.into()),
            _ => None,
        }
    }
    let rows = [(TypeId::RECORD, None), (TypeId::RECORD, None)];
    add_of::<(Datum, Datum), _>(builder, (13_210, "_pg_truetypid"), rows, TypeId::OID, |_, rows| {
        let (Datum::Record(column), Datum::Record(ty)) = rows else { return None };
        let id = match of_domain(&ty) {
            true => field(&ty, PLACE_OF_BASE),
            false => field(&column, PLACE_OF_TYPE),
        };
        id.and_then(|id| u32::try_from(id).ok())
    });
    add_of::<(Datum, Datum), _>(builder, (13_211, "_pg_truetypmod"), rows, TypeId::INT4, |_, rows| {
        let (Datum::Record(column), Datum::Record(ty)) = rows else { return None };
        let modifier = match of_domain(&ty) {
            true => field(&ty, PLACE_OF_BASE_MODIFIER),
            false => field(&column, PLACE_OF_MODIFIER),
        };
        modifier.and_then(|modifier| i32::try_from(modifier).ok())
    });
    let mut sizes = |oid: u32, name: &str, size: fn(Type) -> Option<i32>| {
        add::<(u32, i32), _>(builder, oid, name, TypeId::INT4, move |_, (ty, modifier)| {
            size(Type::new(TypeId(ty)).with_modifier(modifier))
        });
    };
    sizes(13_212, "_pg_char_max_length", |ty| ty.length().map(|length| length as i32));
    sizes(13_213, "_pg_char_octet_length", octet_length);
    sizes(13_215, "_pg_numeric_precision", numeric_precision);
    sizes(13_216, "_pg_numeric_precision_radix", |ty| match ty.id {
        TypeId::NUMERIC => Some(10),
        ty if is_binary_number(ty) => Some(2),
        _ => None,
    });
    sizes(13_217, "_pg_numeric_scale", numeric_scale);
    sizes(13_218, "_pg_datetime_precision", datetime_precision);
    add::<(u32, i32), _>(builder, 13_219, "_pg_interval_type", TypeId::TEXT, |call, (ty, modifier)| {
        let ty = Type::new(TypeId(ty)).with_modifier(modifier);
        let fields = interval_type(ty)?;
        call.text.push_str(&fields);
        Some(Text)
    });
}

fn add<A: Arguments, O: Outcome + 'static>(
    builder: &mut RegistryBuilder,
    oid: u32,
    name: &str,
    result: TypeId,
    call: impl for<'a> Fn(&mut Call<'_>, A::Row<'a>) -> O + Send + Sync + 'static,
) {
    let parameters = [(TypeId::OID, Some("typid")), (TypeId::INT4, Some("typmod"))];
    add_of::<A, O>(builder, (oid, name), parameters, result, call);
}

/// Adds a strict function with these parameters.
fn add_of<A: Arguments, O: Outcome + 'static>(
    builder: &mut RegistryBuilder,
    (oid, name): (u32, &str),
    parameters: [(TypeId, Option<&str>); 2],
    result: TypeId,
    call: impl for<'a> Fn(&mut Call<'_>, A::Row<'a>) -> O + Send + Sync + 'static,
) {
    let kernel = scalar::<A, O>(call);
    let parameter = |(ty, name): (TypeId, Option<&str>)| Parameter {
        ty,
        name: name.map(Into::into),
        mode: Mode::In,
        default: None,
    };
    builder.add(Function {
        id: FunctionId(oid),
        schema: Some(SCHEMA.into()),
        name: name.into(),
        parameters: parameters.into_iter().map(parameter).collect(),
        result,
        volatility: Volatility::Immutable,
        is_strict: true,
        parallel: Parallel::Safe,
        may_be_null: true,
        can_fail: false,
        cannot_fail: None,
        body: Body::Scalar(Kernels { general: Arc::new(kernel), special: Vec::new() }),
    });
}

fn is_binary_number(ty: TypeId) -> bool {
    matches!(ty, TypeId::INT2 | TypeId::INT4 | TypeId::INT8 | TypeId::FLOAT4 | TypeId::FLOAT8)
}

/// The most bytes of a value: UTF-8 takes up to four for a character.
pub(super) fn octet_length(ty: Type) -> Option<i32> {
    match ty.id {
        TypeId::TEXT => Some(1 << 30),
        TypeId::VARCHAR | TypeId::BPCHAR => Some(ty.length().map_or(1 << 30, |length| length as i32 * 4)),
        _ => None,
    }
}

pub(super) fn numeric_precision(ty: Type) -> Option<i32> {
    match ty.id {
        TypeId::INT2 => Some(16),
        TypeId::INT4 => Some(32),
        TypeId::INT8 => Some(64),
        TypeId::FLOAT4 => Some(24),
        TypeId::FLOAT8 => Some(53),
        _ => ty.precision_and_scale().map(|(precision, _)| precision.into()),
    }
}

pub(super) fn numeric_scale(ty: Type) -> Option<i32> {
    match ty.id {
        TypeId::INT2 | TypeId::INT4 | TypeId::INT8 => Some(0),
        _ => ty.precision_and_scale().map(|(_, scale)| scale.into()),
    }
}

/// Digits of the second.
pub(super) fn datetime_precision(ty: Type) -> Option<i32> {
    const MOST: i32 = 6;
    const FULL_PRECISION: i32 = 0xffff;
    match ty.id {
        TypeId::DATE => Some(0),
        TypeId::TIME | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ => {
            Some(if ty.modifier < 0 { MOST } else { ty.modifier })
        }
        TypeId::INTERVAL => match ty.modifier & FULL_PRECISION {
            _ if ty.modifier < 0 => Some(MOST),
            FULL_PRECISION => Some(MOST),
            digits => Some(digits),
        },
        _ => None,
    }
}

/// The fields that an interval is restricted to, in capital letters.
pub(super) fn interval_type(ty: Type) -> Option<String> {
    if ty.id != TypeId::INTERVAL || ty.modifier < 0 {
        return None;
    }
    let name = ty.to_string();
    let fields = name.strip_prefix("interval ")?;
    Some(fields.to_ascii_uppercase())
}

/// `_pg_expandarray`: the elements of an array with their numbers from 1 on.
struct ExpandArray;

impl SetKernel for ExpandArray {
    fn can_fail(&self) -> bool {
        false
    }

    fn begin(&self, _: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let Datum::List(list) = arguments[0] else { return Ok(None) };
        Ok(Some(Box::new(Expanded { elements: list.elements(), next: 0 })))
    }
}

struct Expanded {
    elements: Vector,
    next: usize,
}

impl Set for Expanded {
    fn next(&mut self, _: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool> {
        let end = self.elements.len().min(self.next + most);
        for row in self.next..end {
            columns[0].push(self.elements.datum(row));
            columns[1].push(Datum::Int32(row as i32 + 1));
        }
        self.next = end;
        Ok(end < self.elements.len())
    }
}
