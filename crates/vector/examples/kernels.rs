//! What hot kernels and aggregates cost: nanoseconds a row, over vectors of 2,048 rows, the best of many runs.
//!
//! `cargo run --release --locked -p firn-vector --example kernels`

use firn_base::numeric::Numeric;
use firn_base::random::Random;
use firn_base::{Representation, Result, Type, TypeId};
use firn_vector::builder::Builder;
use firn_vector::context::detached;
use firn_vector::kernel::{Call, CallSite, Local, Signature};
use firn_vector::registry::Body;
use firn_vector::{Data, Datum, Registry, Rows, Vector};
use std::hint::black_box;
use std::time::Instant;

const ROWS: usize = 2048;

fn main() -> Result<()> {
    let registry = Registry::built_in();
    let mut random = Random::seeded(1);
    let price = decimals(15, 2, || random.uniform(90_000, 10_000_000));
    let discount = decimals(15, 2, || random.uniform(0, 10));
    let tax = decimals(15, 2, || random.uniform(0, 8));
    let one =
        constant(Representation::Decimal { precision: 1, scale: 0 }, Datum::Numeric(Numeric::from(1i64)));
    let plain_one = constant(Representation::Numeric, Datum::Numeric(Numeric::from(1i64)));
    let numeric = TypeId::NUMERIC;

    let less = scalar(&registry, "numeric_sub", &[&one, &discount], numeric, "1 - decimal")?;
    scalar(&registry, "numeric_sub", &[&plain_one, &discount], numeric, "1 - decimal, as plain numeric")?;
    let net = scalar(&registry, "numeric_mul", &[&price, &less], numeric, "decimal * decimal, 31 digits")?;
    let more = scalar(&registry, "numeric_add", &[&one, &tax], numeric, "1 + decimal")?;
    let gross = scalar(&registry, "numeric_mul", &[&net, &more], numeric, "decimal * decimal, 47 digits")?;

    let numbers: Vec<u32> = (0..ROWS).map(|_| random.uniform(0, 3) as u32).collect();
    for (argument, name) in [(&price, "decimal"), (&net, "wide decimal"), (&gross, "plain numeric")] {
        for function in ["sum", "avg", "min"] {
            aggregate(
                &registry,
                function,
                argument,
                numeric,
                &numbers,
                4,
                &format!("{function}({name}), 4 groups"),
            )?;
        }
        aggregate(&registry, "sum", argument, numeric, &numbers, 1, &format!("sum({name}), 1 group"))?;
    }
    let integers = integers(Representation::Int32, || random.uniform(0, 10_000) as i32);
    for function in ["sum", "avg", "max"] {
        aggregate(
            &registry,
            function,
            &integers,
            TypeId::INT4,
            &numbers,
            4,
            &format!("{function}(int4), 4 groups"),
        )?;
    }
    aggregate(&registry, "count", &integers, TypeId::ANY, &numbers, 4, "count(int4), 4 groups")?;

    let quantity = constant(Representation::Numeric, Datum::Numeric(Numeric::from(50_000i64)));
    scalar(&registry, "numeric_lt", &[&price, &quantity], numeric, "decimal < numeric constant")?;
    scalar(&registry, "numeric_lt", &[&price, &net], numeric, "decimal < decimal of another scale")?;
    let five_thousand = constant(Representation::Int32, Datum::Int32(5_000));
    scalar(&registry, "int4lt", &[&integers, &five_thousand], TypeId::INT4, "int4 < constant")?;
    scalar(&registry, "int4lt", &[&integers, &integers], TypeId::INT4, "int4 < int4")?;
    let days = self::integers(Representation::Date, || random.uniform(8_000, 10_000) as i32);
    let midnight = constant(Representation::Timestamp, Datum::Int64(9_000 * 86_400_000_000));
    typed(
        &registry,
        "date_le_timestamp",
        &[&days, &midnight],
        &[TypeId::DATE, TypeId::TIMESTAMP],
        "date <= timestamp constant",
    )?;
    let year = text_constant("year");
    typed(&registry, "extract", &[&year, &days], &[TypeId::TEXT, TypeId::DATE], "extract(year from date)")?;

    let comments = texts(|| {
        let words =
            ["special", "requests", "furiously", "packages", "deposits", "accounts", "carefully", "ironic"];
        let count = random.uniform(4, 10);
        (0..count).map(|_| words[random.uniform(0, 7) as usize]).collect::<Vec<_>>().join(" ")
    });
    let text = TypeId::TEXT;
    for pattern in ["%special%requests%", "special%", "%ironic", "%s_ecial%"] {
        let name = format!("not like '{pattern}'");
        scalar(&registry, "textnlike", &[&comments, &text_constant(pattern)], text, &name)?;
    }
    let brands = texts(|| format!("Brand#{}", random.uniform(11, 55)));
    scalar(&registry, "texteq", &[&brands, &text_constant("Brand#23")], text, "text = short constant")?;
    scalar(
        &registry,
        "texteq",
        &[&comments, &text_constant("special requests furiously")],
        text,
        "text = long constant",
    )?;
    let (from, count) =
        (constant(Representation::Int32, Datum::Int32(1)), constant(Representation::Int32, Datum::Int32(2)));
    typed(
        &registry,
        "substring",
        &[&brands, &from, &count],
        &[text, TypeId::INT4, TypeId::INT4],
        "substring(text, 1, 2)",
    )?;
    Ok(())
}

fn decimals(precision: u8, scale: u8, mut value: impl FnMut() -> i64) -> Vector {
    let data = Data::Int64((0..ROWS).map(|_| value()).collect());
    Vector::flat(Representation::Decimal { precision, scale }, data, None)
}

fn integers(representation: Representation, mut value: impl FnMut() -> i32) -> Vector {
    Vector::flat(representation, Data::Int32((0..ROWS).map(|_| value()).collect()), None)
}

fn texts(mut value: impl FnMut() -> String) -> Vector {
    let mut builder = Builder::new(Representation::Text);
    (0..ROWS).for_each(|_| builder.push(Datum::Text(&value())));
    builder.finish()
}

fn constant(representation: Representation, value: Datum<'_>) -> Vector {
    let mut builder = Builder::new(representation);
    builder.push(value);
    Vector::constant(representation, builder.finish().data().expect("it is flat").clone(), ROWS)
}

fn text_constant(text: &str) -> Vector {
    constant(Representation::Text, Datum::Text(text))
}

/// Calls a function whose arguments have one type, and prints what it costs.
fn scalar(
    registry: &Registry,
    function: &str,
    arguments: &[&Vector],
    ty: TypeId,
    name: &str,
) -> Result<Vector> {
    typed(registry, function, arguments, &vec![ty; arguments.len()], name)
}

fn typed(
    registry: &Registry,
    function: &str,
    arguments: &[&Vector],
    types: &[TypeId],
    name: &str,
) -> Result<Vector> {
    let function = registry.function_of(function, types).unwrap_or_else(|| panic!("there is a {function}"));
    let representations: Box<[Representation]> = arguments.iter().map(|it| it.representation()).collect();
    let result = Type::new(function.result);
    let mut site: CallSite = function.call_site(Signature {
        arguments: types.iter().map(|ty| Type::new(*ty)).collect(),
        representation: function.representation(&representations, result),
        representations,
        result,
        has_variadic_array: false,
    });
    let arguments: Vec<Vector> = arguments.iter().map(|argument| (*argument).clone()).collect();
    let context = detached();
    let vector = site.vectors(&context, &arguments, Rows::all(ROWS))?;
    measure(name, || black_box(site.vectors(&context, black_box(&arguments), Rows::all(ROWS))).map(drop))?;
    Ok(vector)
}

fn aggregate(
    registry: &Registry,
    function: &str,
    argument: &Vector,
    ty: TypeId,
    numbers: &[u32],
    groups: usize,
    name: &str,
) -> Result<()> {
    let function = registry.function_of(function, &[ty]).unwrap_or_else(|| panic!("there is a {function}"));
    let Body::Aggregate(body) = &function.body else { panic!("it is an aggregate") };
    let result = Type::new(function.result);
    let signature = Signature {
        arguments: [Type::new(ty)].into(),
        representations: [argument.representation()].into(),
        result,
        representation: result.representation().expect("it has values"),
        has_variadic_array: false,
    };
    let (context, mut local) = (detached(), Local::default());
    let mut call = Call::new(&context, &signature, &mut local);
    let mut states = body.kernel.states();
    states.resize(&signature, groups);
    let numbers: Vec<u32> = numbers.iter().map(|number| number % groups as u32).collect();
    let arguments = [argument.clone()];
    measure(name, || states.add(&mut call, black_box(&numbers), black_box(&arguments), Rows::all(ROWS)))
}

/// Prints the nanoseconds a row of the best of many runs.
fn measure(name: &str, mut run: impl FnMut() -> Result<()>) -> Result<()> {
    let mut best = f64::INFINITY;
    for _ in 0..300 {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_nanos() as f64);
    }
    println!("{:8.2} ns  {name}", best / ROWS as f64);
    Ok(())
}
