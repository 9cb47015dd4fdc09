//! Kernels through both adapters, with NULLs, constants, selections, dictionaries and errors.

use super::*;
use crate::context::detached;
use crate::data::Data;
use crate::kernel::scalar::scalar;
use crate::registry::{Registry, Volatility};
use crate::vector::{Codes, Dictionary};
use arrow_buffer::NullBuffer;
use firn_base::sync::Arc;
use firn_base::{Error, SqlState, TypeId};

fn integers(values: &[i32], valid: &[bool]) -> Vector {
    let validity = NullBuffer::from(valid.to_vec());
    Vector::flat(Representation::Int32, Data::Int32(values.to_vec().into()), Some(validity))
}

fn signature(arguments: &[TypeId], result: TypeId) -> Signature {
    let lies = |ty: &TypeId| Type::new(*ty).representation().expect("values have the type");
    Signature {
        arguments: arguments.iter().map(|ty| Type::new(*ty)).collect(),
        representations: arguments.iter().map(lies).collect(),
        result: Type::new(result),
        representation: lies(&result),
        has_variadic_array: false,
    }
}

fn site(kernel: impl Kernel + 'static, arguments: &[TypeId], result: TypeId) -> CallSite {
    CallSite::new(Arc::new(kernel), Arc::new(signature(arguments, result)), Volatility::Immutable)
}

fn shown(vector: &Vector) -> Vec<String> {
    (0..vector.len()).map(|row| format!("{:?}", vector.datum(row))).collect()
}

#[test]
fn a_strict_kernel_is_not_called_with_null_nor_for_rows_that_are_not_selected() {
    let kernel = scalar::<(i32, i32), _>(|_, (left, right)| {
        assert!(left > 0 && right > 0, "0 stands under NULL and in the row that is not selected");
        left.checked_add(right).ok_or(Overflow("integer out of range"))
    });
    assert!(!kernel.can_fail());
    let mut site = site(kernel, &[TypeId::INT4, TypeId::INT4], TypeId::INT4);
    let left = integers(&[1, 0, 3, 0], &[true, false, true, true]);
    let ten = Vector::constant(Representation::Int32, Data::Int32(vec![10].into()), 4);
    let sums = site.vectors(&detached(), &[left, ten], Rows::at(&[0, 1, 2], 4)).expect("no overflow");
    assert_eq!(shown(&sums)[..3], ["Int32(11)", "Null", "Int32(13)"]);
    let mut out = Slot::new();
    site.cells(&detached(), &[Datum::Int32(1), Datum::Null], &mut out).expect("no overflow");
    assert!(out.get().is_null());
    let error = site.cells(&detached(), &[Datum::Int32(i32::MAX), Datum::Int32(1)], &mut out);
    assert_eq!(error.expect_err("it overflows").state(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
}

#[test]
fn constants_are_computed_once_and_stay_constant() {
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let calls: &'static _ = Box::leak(Box::new(calls));
    let kernel = scalar::<(Option<i32>,), _>(|_, (value,)| {
        calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        value.is_none()
    });
    let mut site = site(kernel, &[TypeId::INT4], TypeId::BOOL);
    let is_null =
        site.vectors(&detached(), &[Vector::null(Representation::Int32, 7)], Rows::all(7)).expect("total");
    assert!(is_null.is_constant() && is_null.len() == 7);
    assert!(matches!(is_null.datum(6), Datum::Boolean(true)));
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn strings_are_appended_and_a_failed_row_leaves_nothing_behind() {
    let kernel = scalar::<(&str, i32), _>(|call, (text, times)| {
        call.text.push_str(text);
        if times < 0 {
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "negative"));
        }
        (1..times).for_each(|_| call.text.push_str(text));
        Ok((times > 0).then_some(Text))
    });
    assert!(kernel.can_fail());
    let signature = signature(&[TypeId::TEXT, TypeId::INT4], TypeId::TEXT);
    let mut builder = crate::builder::Builder::new(Representation::Text);
    ["ab", "c", "de", "abcdefg"].into_iter().for_each(|text| builder.push(Datum::Text(text)));
    let (texts, times) = (builder.finish(), integers(&[2, -1, 0, 3], &[true; 4]));
    let (context, mut local, mut errors) = (detached(), Local::default(), Errors::new());
    let mut call = Call::new(&context, &signature, &mut local);
    let result = kernel
        .vectors(&mut call, &[texts, times], Rows::all(4), Some(&mut errors))
        .expect("the error is kept");
    assert_eq!(shown(&result), ["Text(\"abab\")", "Null", "Null", "Text(\"abcdefgabcdefgabcdefg\")"]);
    assert!(errors.get(1).is_some() && errors.get(2).is_none());

    let mut site = CallSite::new(Arc::new(kernel), Arc::new(signature), Volatility::Immutable);
    let mut out = Slot::new();
    site.cells(&context, &[Datum::Text("xy"), Datum::Int32(2)], &mut out).expect("positive");
    assert!(matches!(out.get(), Datum::Text("xyxy")));
}

#[test]
fn results_of_a_type_that_the_signature_knows_may_be_null() {
    let kernel = scalar::<(Option<Datum>,), _>(|call, (value,)| {
        call.value.set(value.unwrap_or(Datum::Null));
        Any
    });
    let mut site = site(kernel, &[TypeId::INT4], TypeId::INT4);
    let vector = integers(&[1, 0, 3, 4], &[true, false, true, true]);
    let copy = site.vectors(&detached(), &[vector], Rows::at(&[1, 2], 4)).expect("it is total");
    assert_eq!(shown(&copy)[1..3], ["Null", "Int32(3)"]);
}

#[test]
fn decimals_are_added_with_one_scale_and_refuse_nan() {
    let registry = Registry::built_in();
    let decimal = |precision, scale| Representation::Decimal { precision, scale };
    let add = registry.function_of("numeric_add", &[TypeId::NUMERIC, TypeId::NUMERIC]).expect("numerics add");
    let representations = [decimal(12, 2), decimal(20, 3)];
    let numeric = Type::new(TypeId::NUMERIC);
    assert_eq!(add.representation(&representations, numeric), decimal(21, 3));
    let mut site = add.call_site(Signature {
        arguments: [numeric; 2].into(),
        representations: representations.into(),
        result: numeric,
        representation: decimal(21, 3),
        has_variadic_array: false,
    });
    let left = Vector::flat(representations[0], Data::Int64(vec![150, -1].into()), None);
    let right = Vector::flat(representations[1], Data::Int128(vec![2500, 1].into()), None);
    let sums = site.vectors(&detached(), &[left, right], Rows::all(2)).expect("it fits");
    assert_eq!(shown(&sums), ["Numeric(4.000)", "Numeric(-0.009)"]);
    assert!(matches!(sums.data(), Some(Data::Int128(_))));

    let fit = registry.function_of("numeric", &[TypeId::NUMERIC, TypeId::INT4]).expect("it fits modifiers");
    let result = Type::numeric(12, 2);
    let mut site = fit.call_site(Signature {
        arguments: [numeric, Type::new(TypeId::INT4)].into(),
        representations: [Representation::Numeric, Representation::Int32].into(),
        result,
        representation: decimal(12, 2),
        has_variadic_array: false,
    });
    let (nan, modifier) = (Datum::Numeric(firn_base::numeric::Numeric::NAN), Datum::Int32(result.modifier));
    let error =
        site.cells(&detached(), &[nan, modifier], &mut Slot::new()).expect_err("decimals have no NaN");
    assert_eq!(error.state(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
}

#[test]
fn a_dictionary_is_computed_once_and_its_errors_wait_for_a_row_that_has_the_value() {
    let kernel = scalar::<(i32,), _>(|_, (value,)| match value {
        0 => Err(Error::new(SqlState::DIVISION_BY_ZERO, "division by zero")),
        value => Ok(100 / value),
    });
    let mut site = site(kernel, &[TypeId::INT4], TypeId::INT4);
    let values = Vector::flat(Representation::Int32, Data::Int32(vec![0, 5, 10].into()), None);
    let dictionary = Arc::new(Dictionary { id: 1, is_sorted: true, values });
    let codes = Codes::U8(vec![1, 0, 2, 1, 0].into());
    let validity = NullBuffer::from(vec![true, true, true, true, false]);
    let vector = Vector::codes(codes, dictionary, Some(validity));
    let result = site.vectors(&detached(), std::slice::from_ref(&vector), Rows::at(&[0, 2, 3, 4], 5));
    let result = result.expect("no selected row has the value that fails");
    assert_eq!(shown(&result)[2..], ["Int32(10)", "Int32(20)", "Null"]);
    assert!(site.vectors(&detached(), &[vector], Rows::all(5)).is_err());
}

#[test]
fn every_form_reads_and_flattens_to_the_same_values() {
    let flat = integers(&[7, 7, 0, 9, 9, 9], &[true, true, false, true, true, true]);
    let values = Vector::flat(Representation::Int32, Data::Int32(vec![7, 9].into()), None);
    let dictionary = Arc::new(Dictionary { id: 2, is_sorted: true, values });
    let validity = flat.validity().cloned();
    let codes = Vector::codes(Codes::U16(vec![0, 0, 0, 1, 1, 1].into()), dictionary, validity.clone());
    let offsets =
        Vector::offsets(Representation::Int32, Codes::U8(vec![0, 0, 0, 2, 2, 2].into()), 7, validity);
    let runs = integers(&[7, 0, 9], &[true, false, true]);
    let runs = Vector::runs(vec![2, 3, 6].into(), Arc::new(runs));
    for vector in [&codes, &offsets, &runs] {
        assert_eq!(shown(vector), shown(&flat));
        assert_eq!(shown(&vector.flatten(Rows::all(6))), shown(&flat));
        for from in 0..=6 {
            for length in 0..=6 - from {
                assert_eq!(shown(&vector.slice(from, length)), shown(&flat)[from..from + length]);
            }
        }
        assert_eq!(shown(&vector.take([5, 2, 0].into_iter())), ["Int32(9)", "Null", "Int32(7)"]);
    }
}

#[test]
fn what_the_registry_has_is_found_by_name_oid_and_types() {
    let registry = Registry::built_in();
    let plus = registry.operator_of("+", Some(TypeId::INT4), TypeId::INT4).expect("integers add");
    assert_eq!(plus.id.0, 551);
    let function = registry.function(plus.function).expect("operators have functions");
    assert_eq!((&*function.name, function.id.0, function.result), ("int4pl", 177, TypeId::INT4));
    assert!(function.is_strict && !function.can_fail);
    assert!(registry.functions_named("int4pl").len() == 1 && registry.functions_named("nothing").is_empty());
}
