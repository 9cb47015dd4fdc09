//! Plans as text over small tables, a few for each operator: what random plans do not come to.

use crate::registry::REGISTRY;
use crate::support::{MODES, Mode, aligned, multiset, options, reader, run, sources, text};
use firn_base::Cancel;
use firn_base::disk::SimulatedDisk;
use firn_base::sync::Arc;
use firn_base::{Error, SqlState, Value};
use firn_executor::{Budget, Options, Program, Rows, SpillArea};
use firn_plan::Plan;
use firn_plan::operator::SourceId;
use firn_plan::reference::{Tables, TestFunctions, run as interpret};
use firn_plan::text::parse;
use firn_plan::verify::verify;
use firn_vector::context::{Context, detached};

const T: [[Option<i32>; 3]; 6] = [
    [Some(1), Some(10), Some(1)],
    [Some(1), Some(20), None],
    [Some(2), Some(30), Some(2)],
    [Some(3), Some(40), Some(2)],
    [None, Some(50), Some(3)],
    [Some(3), Some(60), None],
];
const U: [[Option<i32>; 3]; 4] = [
    [Some(1), Some(1), None],
    [Some(1), Some(2), Some(2)],
    [Some(3), Some(3), Some(2)],
    [None, Some(4), Some(1)],
];

fn tables() -> Tables {
    let rows = |rows: &[[Option<i32>; 3]]| {
        let row = |row: &[Option<i32>; 3]| {
            let integer = |value: &Option<i32>| value.map_or(Value::Null, Value::Integer);
            row.iter().map(integer).chain([Value::Null]).collect()
        };
        rows.iter().map(row).collect()
    };
    Tables::from([(SourceId(1), rows(&T)), (SourceId(2), rows(&U)), (SourceId(3), Vec::new())])
}

fn plan(text: &str) -> Plan {
    let plan = parse(&aligned(text), &TestFunctions).unwrap_or_else(|problem| panic!("{problem}"));
    verify(&plan).unwrap_or_else(|problem| panic!("{problem}"));
    plan
}

/// The rows of a plan, in its order, which are the same in each mode: a plan with several rows must have an order, since several
/// threads work in some modes.
fn rows(plan_text: &str) -> Vec<String> {
    let plan = plan(plan_text);
    let each = MODES.map(|mode| {
        let rows = run(&plan, &sources(&tables(), mode.morsel_rows), &[], options(mode));
        rows.unwrap().iter().map(|row| text(row)).collect::<Vec<_>>()
    });
    assert_eq!(each[0], each[1]);
    assert_eq!(each[0], each[2]);
    each[0].clone()
}

/// Also asks the interpreter.
fn checked(plan_text: &str) -> Vec<String> {
    let found = rows(plan_text);
    let expected = interpret(&plan(plan_text), &tables(), &[]).unwrap();
    assert_eq!(found, expected.iter().map(|row| text(row)).collect::<Vec<_>>());
    found
}

fn error(plan_text: &str) -> SqlState {
    let plan = plan(plan_text);
    let each = MODES.map(|mode| {
        run(&plan, &sources(&tables(), mode.morsel_rows), &[], options(mode)).unwrap_err().state()
    });
    assert!(each.iter().all(|state| *state == each[0]));
    each[0]
}

fn integers(values: &[i32]) -> Vec<String> {
    values.iter().map(|value| format!("Integer({value})")).collect()
}

#[test]
fn the_first_rows_of_an_order_with_an_offset() {
    let found = checked(
        "Output [#1]
           Limit 2::int8 offset 1::int8
             Sort [#0 desc nulls first, #1]
               Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]",
    );
    assert_eq!(found, integers(&[40, 60]));
}

#[test]
fn rows_that_tie_with_the_last_one_go_on() {
    let found = checked(
        "Output [#0, #1]
           Limit 1::int8 ties [#0]
             Sort [#0, #1]
               Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]",
    );
    assert_eq!(found.len(), 2);
}

#[test]
fn a_branch_fails_only_for_rows_that_reach_it() {
    let found = checked(
        "Output [#2]
           Sort [#1]
             Map [#2: int4 := case when (#0 = 1::int4) then 0::int4 else (10::int4 / (#0 - 1::int4)) end]
               Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]",
    );
    assert_eq!(found, ["Integer(0)", "Integer(0)", "Integer(10)", "Integer(5)", "Null", "Integer(5)"]);
    let state = error(
        "Output [#2]
           Map [#2: int4 := (10::int4 / (#0 - 1::int4))]
             Scan 1 t [#0 a: int4 = 1]",
    );
    assert_eq!(state, SqlState::DIVISION_BY_ZERO);
}

#[test]
fn conditions_that_can_fail_are_asked_last() {
    let found = checked(
        "Output [#1]
           Sort [#1]
             Filter [((10::int4 / (#0 - 1::int4)) > 4::int4), (#0 > 1::int4)]
               Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]",
    );
    assert_eq!(found, integers(&[30, 40, 60]));
}

#[test]
fn lists_of_constants_are_sets_with_their_nulls() {
    let found = checked(
        "Output [#2, #3]
           Sort [#1]
             Map [#2: bool := (#0 = any [1::int4, 2::int4, 7::int4, 8::int4]), #3: bool := (#0 <> all [1::int4, null::int4, 7::int4, 8::int4])]
               Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]",
    );
    assert_eq!(found[0], "Boolean(true) | Boolean(false)");
    assert_eq!(found[2], "Boolean(true) | Null");
    assert_eq!(found[3], "Boolean(false) | Null");
    assert_eq!(found[4], "Null | Null");
}

#[test]
fn a_mark_of_two_keys_is_unknown_only_where_no_other_key_differs() {
    // (a, c) IN (SELECT a, c FROM u)
    let found = checked(
        "Output [#1, #20]
           Sort [#1]
             Join mark #20: bool on [(#0 = #10), (#2 = #12)]
               Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2, #2 c: int4 = 3]
               Scan 2 u [#10 a: int4 = 1, #12 c: int4 = 3]",
    );
    let marks: Vec<&str> = found.iter().map(|row| row.split(" | ").nth(1).unwrap()).collect();
    assert_eq!(marks, ["Null", "Null", "Boolean(false)", "Boolean(true)", "Null", "Null"]);
}

#[test]
fn a_second_row_of_a_scalar_sub_query_fails_only_where_it_is_asked_for() {
    let single = |condition: &str| {
        format!(
            "Output [#1, #11]
               Sort [#1]
                 Join single on [(#0 = #10)]
                   Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2] where [{condition}]
                   Scan 2 u [#10 a: int4 = 1, #11 b: int4 = 2]"
        )
    };
    assert_eq!(error(&single("true")), SqlState::CARDINALITY_VIOLATION);
    assert_eq!(checked(&single("(#0 > 1::int4)")).len(), 3);
}

#[test]
fn joins_with_other_conditions_than_equality_meet_all_pairs() {
    for kind in ["inner", "left", "full", "semi", "anti"] {
        let right = if matches!(kind, "semi" | "anti") { "" } else { ", #11" };
        let found = rows(&format!(
            "Output [#1{right}]
               Sort [#1{}]
                 Join {kind} on [(#0 < #10), (#1 > #11)]
                   Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]
                   Scan 2 u [#10 a: int4 = 1, #11 b: int4 = 2]",
            if right.is_empty() { "" } else { ", #11" }
        ));
        let expected = match kind {
            "inner" | "semi" => 3,
            "left" => 6,
            "full" => 9,
            _ => 3,
        };
        assert_eq!(found.len(), expected, "{kind}: {found:?}");
    }
}

#[test]
fn aggregates_take_rows_in_their_order_and_equal_ones_once() {
    let found = rows(
        "Output [#3]
           Group aggregates [#3: int4[] := array_agg(#0) order [#1 desc nulls last]]
             Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]",
    );
    // The text of arrays is sorted; so their order is asked for by the interpreter's own.
    assert_eq!(found.len(), 1);
    let plan = plan(
        "Output [#3]
           Group aggregates [#3: int4[] := array_agg(#0) order [#1 desc nulls last]]
             Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]",
    );
    let found = run(&plan, &sources(&tables(), 1), &[], options(MODES[2])).unwrap();
    assert_eq!(found, interpret(&plan, &tables(), &[]).unwrap());
    let distinct = checked(
        "Output [#3, #4]
           Group aggregates [#3: int8 := count(#0) distinct, #4: int8 := sum(#0) distinct filter (#1 > 10::int4)]
             Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]",
    );
    assert_eq!(distinct, ["BigInt(3) | BigInt(6)"]);
}

#[test]
fn no_rows_make_one_group_only_without_keys() {
    let of_sets = checked(
        "Output [#2, #3, #4]
           Group by [#0] sets [(0), ()] as [#2: int4] number #3: int4 aggregates [#4: int8 := count()]
             Scan 3 e [#0 a: int4 = 1]",
    );
    assert_eq!(of_sets, ["Null | Integer(1) | BigInt(0)"]);
}

#[test]
fn frames_of_each_unit() {
    for frame in [
        "",
        " frame rows (preceding 1::int8, current)",
        " frame rows (preceding 2::int8, following 1::int8)",
        " frame rows (first, last) exclude current",
        " frame rows (current, last)",
        " frame rows (following 1::int8, following 2::int8)",
        " frame groups (current, last) exclude peers",
    ] {
        for call in ["sum(#1)", "count(#1)", "max(#1)", "min(#1)"] {
            let ty = if call.starts_with('m') { "int4" } else { "int8" };
            checked(&format!(
                "Output [#0, #1, #3]
                   Sort [#0, #1]
                     Window partition [#2] order [#0, #1 desc nulls last] calls [#3: {ty} := {call}{frame}]
                       Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2, #2 c: int4 = 3]",
            ));
        }
    }
}

#[test]
fn a_range_with_a_distance_takes_values_that_are_so_near() {
    for direction in ["", " desc nulls last"] {
        let found = rows(&format!(
            "Output [#1, #3]
               Sort [#1]
                 Window order [#0{direction}] calls [#3: int8 := sum(#1) frame range (preceding 1::int4, current)]
                   Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]",
        ));
        let sums: Vec<&str> = found.iter().map(|row| row.split(" | ").nth(1).unwrap()).collect();
        // NULL has no neighbours but other NULLs.
        let expected = match direction {
            "" => ["BigInt(30)", "BigInt(30)", "BigInt(60)", "BigInt(130)", "BigInt(50)", "BigInt(130)"],
            _ => ["BigInt(60)", "BigInt(60)", "BigInt(130)", "BigInt(100)", "BigInt(50)", "BigInt(100)"],
        };
        assert_eq!(sums, expected);
    }
}

#[test]
fn functions_side_by_side_are_padded_and_numbered() {
    let found = checked(
        "Output [#1, #2, #3]
           TableFunction [generate_series(1::int4, 5::int4) -> [#1: int4], generate_series(1::int4, 2::int4) -> [#2: int4]] ordinality #3: int8",
    );
    assert_eq!(found.len(), 5);
    assert_eq!(found[1], "Integer(2) | Integer(2) | BigInt(2)");
    assert_eq!(found[4], "Integer(5) | Null | BigInt(5)");
}

const ENDLESS: &str = "Output [#0]
   Limit 10::int8
     Iterate 1 all [#0: int4] initial [#1] step [#3]
       Values [#1: int4] rows [(1::int4)]
       Map [#3: int4 := (#2 + 1::int4)]
         IterateRead 1 [#2: int4]";

#[test]
fn a_limit_ends_an_endless_recursion() {
    assert_eq!(rows(ENDLESS), integers(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
}

#[test]
fn a_recursion_keeps_what_does_not_depend_on_the_round() {
    let found = checked(
        "Output [#0]
           Sort [#0]
             Iterate 1 distinct [#0: int4] initial [#1] step [#4]
               Values [#1: int4] rows [(1::int4)]
               Join inner on [(#2 = #3)]
                 IterateRead 1 [#2: int4]
                 Map [#4: int4 := (#3 + 1::int4)]
                   Scan 1 t [#3 a: int4 = 1]",
    );
    assert_eq!(found, integers(&[1, 2, 3, 4]));
}

#[test]
fn each_reader_gets_all_rows_of_a_shared_sub_plan() {
    let plan = "Output [#3, #4]
           Sort [#3]
             Shared 1
               Scan 1 t [#0 b: int4 = 2]
               Join inner on [(#3 = #4)]
                 SharedRead 1 [#3: int4 := #0]
                 SharedRead 1 [#4: int4 := #0]";
    assert_eq!(rows(plan).len(), 6);
}

#[test]
fn memory_beyond_the_budget_is_refused() {
    let plan = plan(
        "Output [#1]
           Sort [#1]
             TableFunction [generate_series(1::int4, 100000::int4) -> [#1: int4]]",
    );
    let small = Options { vector_rows: 2048, ..Options::new(Budget::new(100_000)) };
    let found = run(&plan, &sources(&tables(), 10), &[], small).unwrap_err();
    assert_eq!(found.state(), SqlState::OUT_OF_MEMORY);
}

/// Rows that are sorted in temporary files come in the same order, and the files go with the execution.
#[test]
fn a_sort_without_memory_goes_to_temporary_files() {
    let sorted = "Sort [#2 desc nulls last, #1]
         Map [#2: int4 := case when (#1 > 9000::int4) then null::int4 else (#1 / 100::int4) end, #3: text := ('the text of a row '::text || 'and more of it'::text)]
           TableFunction [generate_series(1::int4, 20000::int4) -> [#1: int4]]";
    let first_of_each = sorted.replace("Sort [#2 desc nulls last, #1]", "DistinctOn [#2] order [#1]");
    for text in [sorted, &first_of_each] {
        let plan = plan(&format!("Output [#1, #2, #3]\n       {text}"));
        let roomy = Options::new(Budget::new(1 << 30));
        let expected = run(&plan, &sources(&tables(), 10), &[], roomy).unwrap();
        let disk = SimulatedDisk::new();
        let area = SpillArea::new(disk, "/".into(), 1 << 30);
        // The first rows of groups fit into memory.
        let always_spill = text == first_of_each;
        let narrow =
            Options { spill: Some(area.clone()), always_spill, ..Options::new(Budget::new(500_000)) };
        let found = run(&plan, &sources(&tables(), 10), &[], narrow).unwrap();
        assert!(expected.len() == 20_000 || expected.len() == 92, "{}", expected.len());
        assert_eq!(found, expected);
        assert_eq!(area.used(), 0);
        assert!(area.written() > 0, "it had to spill");
    }
}

/// A join of 20,000 rows that it keeps, of which 5,000 have one key and some NULL, with more rows than that.
fn large_join(kind: &str) -> String {
    let right = if matches!(kind, "semi" | "anti") { "" } else { ", #3" };
    format!(
        "Output [#1{right}]
           Join {kind} build left on [(#2 = #3), (#1 <> (#3 + 4::int4))]
             Map [#2: int4 := case when (#1 > 19000::int4) then null::int4 when (#1 > 14000::int4) then 7::int4 else (#1 / 2::int4) end]
               TableFunction [generate_series(1::int4, 20000::int4) -> [#1: int4]]
             TableFunction [generate_series(-20000::int4, 5000::int4) -> [#3: int4]]"
    )
}

#[test]
fn joins_that_keep_their_left_side_without_memory_go_to_temporary_files() {
    for (kind, count) in [("left", 20_000), ("semi", 14_999), ("anti", 5_001)] {
        let plan = plan(&large_join(kind));
        for workers in [1, 3] {
            let roomy = Options { workers, ..Options::new(Budget::new(1 << 30)) };
            let expected = run(&plan, &sources(&tables(), 10), &[], roomy.clone()).unwrap();
            let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 30);
            let narrow = Options { spill: Some(area.clone()), budget: Budget::new(300_000), ..roomy };
            let found = run(&plan, &sources(&tables(), 10), &[], narrow).unwrap();
            assert_eq!(expected.len(), count, "{kind}");
            assert_eq!(multiset(&found), multiset(&expected), "{kind}");
            assert!(area.written() > 0 && area.used() == 0, "{kind}");
        }
    }
}

/// A cancel between any two chunks ends a join whose rows are in temporary files, and these go with the execution.
#[test]
fn a_cancel_ends_a_join_without_memory() {
    let program = Arc::new(Program::compile(&plan(&large_join("left")), &REGISTRY).unwrap());
    for chunks in 0..12 {
        let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 30);
        let budget = Budget::new(300_000);
        let options = Options { spill: Some(area.clone()), ..Options::new(budget.clone()) };
        let cancel = Cancel::new();
        let context = Context { cancel: &cancel, ..detached() };
        let mut rows = Rows::start(&program, &sources(&tables(), 10), reader(), &[], options).unwrap();
        for _ in 0..chunks {
            rows.next(&context).unwrap().expect("there are more rows");
        }
        cancel.cancel();
        assert_eq!(rows.next(&context).unwrap_err().state(), SqlState::QUERY_CANCELED);
        drop(rows);
        assert_eq!((area.used(), budget.used()), (0, 0));
    }
}

#[test]
fn a_cancel_ends_an_endless_recursion() {
    let endless = ENDLESS.replace("Limit 10::int8", "Filter [(#0 < 0::int4)]");
    let program = Arc::new(Program::compile(&plan(&endless), &REGISTRY).unwrap());
    let mode = Mode { vector_rows: 3, morsel_rows: 2, workers: 1 };
    let cancel = Cancel::new();
    cancel.cancel();
    let context = Context { cancel: &cancel, ..detached() };
    let mut rows = Rows::start(&program, &sources(&tables(), 10), reader(), &[], options(mode)).unwrap();
    let canceled: Error = rows.next(&context).unwrap_err();
    assert_eq!(canceled.state(), SqlState::QUERY_CANCELED);
    assert!(rows.next(&context).unwrap().is_none(), "an execution that has failed has ended");
}

#[test]
fn parameters_are_values_of_an_execution() {
    let plan = plan(
        "Output [#1]
           Filter [(#0 = $1::int4)]
             Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]",
    );
    for (value, count) in [(Value::Integer(3), 2), (Value::Integer(9), 0), (Value::Null, 0)] {
        let found = run(&plan, &sources(&tables(), 10), &[value], options(MODES[1])).unwrap();
        assert_eq!(found.len(), count);
    }
}
