//! Compares typed rows with the cells of the untyped interface, which has tests of its own.

use super::*;
use crate::table::TableOptions;
use crate::{Guard, Index, IndexColumn, IndexId, IndexSpec, Mark, Table, WriteSet, pin};
use firn_base::random::Random;
use firn_base::{Result, RowId, Snapshot, SqlState, Stamp, TableId, Time};
use std::ops::Bound;

type Everything =
    (i32, bool, i16, i64, f32, f64, i128, Str, Option<i64>, Option<Str>, [u8; 16], Option<Interval>);

fn specs() -> Vec<ColumnSpec> {
    let wide = Representation::Decimal { precision: 38, scale: 2 };
    [
        (Representation::Int32, false),
        (Representation::Boolean, false),
        (Representation::Int16, false),
        (Representation::Timestamp, false),
        (Representation::Float32, false),
        (Representation::Float64, false),
        (wide, false),
        (Representation::Text, false),
        (Representation::Decimal { precision: 12, scale: 2 }, true),
        (Representation::Text, true),
        (Representation::Uuid, false),
        (Representation::Interval, true),
    ]
    .map(|(representation, nullable)| ColumnSpec { representation, nullable })
    .into()
}

fn ids() -> Vec<ColumnId> {
    (0..12).map(ColumnId).collect()
}

/// A table with a unique index over its first column.
fn table() -> (Arc<Table>, Arc<Index>) {
    let table = Table::new(
        TableId(1),
        "everything",
        specs(),
        TableOptions { block_bytes: 1 << 14, ..TableOptions::default() },
    );
    let part = IndexColumn {
        column: ColumnId(0),
        representation: Representation::Int32,
        nullable: false,
        descending: false,
        nulls_first: false,
    };
    let spec = IndexSpec {
        id: IndexId(1),
        name: "everything_pkey".into(),
        columns: vec![part],
        unique: true,
        values: true,
    };
    let index = Index::new(spec);
    table.add_index(index.clone());
    (table, index)
}

fn owner() -> Stamp {
    Stamp::transaction(7)
}

fn own(read_time: u64) -> Snapshot {
    Snapshot { read_time: Time(read_time), owner: owner() }
}

fn other(read_time: u64) -> Snapshot {
    Snapshot { read_time: Time(read_time), owner: Stamp::transaction(8) }
}

fn write_set(table: &Arc<Table>) -> WriteSet {
    let mut write_set = WriteSet::new(owner(), None);
    assert!(table.gate().try_join(owner()));
    write_set.touch(table);
    write_set
}

/// Texts of all lengths around the limit of inline views.
fn text(random: &mut Random) -> String {
    (0..random.uniform(0, 30)).map(|_| char::from(b'a' + random.uniform(0, 25) as u8)).collect()
}

struct Row0 {
    id: i32,
    text: String,
    option: Option<String>,
    number: i64,
}

impl Row0 {
    fn random(id: i32, random: &mut Random) -> Row0 {
        let option = (random.uniform(0, 1) == 1).then(|| text(random));
        Row0 { id, text: text(random), option, number: random.next_u64() as i64 }
    }

    fn values(&self) -> <Everything as Row>::Values<'_> {
        let number = self.number;
        (
            self.id,
            number & 1 == 1,
            number as i16,
            number,
            number as i32 as f32,
            number as i32 as f64,
            i128::from(number) << 40,
            Text::from(&self.text[..]),
            (number & 2 == 2).then_some(number),
            self.option.as_deref().map(Text::from),
            [number as u8; 16],
            (number & 4 == 4).then_some(Interval { months: -1, days: number as i32, nanoseconds: number }),
        )
    }
}

/// The row as the untyped interface reads it.
fn shown(table: &Table, snapshot: Snapshot, row: RowId, guard: &Guard) -> Option<String> {
    let mut cells = [Cell::Null; 12];
    table.read(snapshot, row, &ids(), &mut cells, guard).then(|| show(&cells))
}

fn show(cells: &[Cell<'_>]) -> String {
    let values: Vec<_> = specs()
        .iter()
        .zip(cells)
        .map(|(spec, cell)| format!("{:?}", cell.to_value(spec.representation)))
        .collect();
    values.join(", ")
}

#[test]
fn typed_rows_are_the_rows_of_cells() -> Result<()> {
    let seed = Random::from_entropy().next_u64();
    let random = &mut Random::seeded(seed);
    let (table, index) = table();
    let columns = table.projection::<Everything>(&ids()).unwrap();
    let guard = &pin();
    let mut writes = write_set(&table);
    let count = if cfg!(miri) { 40 } else { 3_000 };
    let rows: Vec<Row0> = (0..count).map(|id| Row0::random(id, random)).collect();
    let values: Vec<_> = rows.iter().map(Row0::values).collect();
    let (one_by_one, together) = values.split_at(count as usize / 2);
    for row in one_by_one {
        table.insert_as(&mut writes, own(0), &columns, row, guard)?;
    }
    table.insert_rows_as(&mut writes, own(0), &columns, together, guard)?;

    let keys: Vec<_> = rows.iter().map(|row| (row.id,)).chain([(-1,)]).collect();
    let mut found = Vec::new();
    table.find_many_as::<(i32,), Everything>(&index, &keys, own(0), &columns, guard, &mut |number, row| {
        assert_eq!(found.len(), number);
        found.push(row.map(|(id, values)| (id, show(&<Everything as Row>::cells(&values)))));
    });
    assert!(found.pop().unwrap().is_none(), "there is no row under the last key");
    for (row, found) in values.iter().zip(&found) {
        let (id, typed) = found.as_ref().expect("every row is found");
        assert_eq!(*typed, show(&<Everything as Row>::cells(row)), "seed {seed}");
        assert_eq!(shown(&table, own(0), *id, guard).as_ref(), Some(typed), "seed {seed}");
        assert!(table.read_as(other(0), *id, &columns, guard).is_none(), "no other transaction sees it yet");
    }
    writes.stamp(Time(1));

    // Changes of some columns, which older snapshots do not see.
    let some = table.projection::<(Option<Str>, i64, Str, bool)>(&[9, 3, 7, 1].map(ColumnId)).unwrap();
    let mut writes = write_set(&table);
    for (id, typed) in found.iter().flatten().step_by(3) {
        let new = Row0::random(5, random);
        let changed = (new.values().9, new.number, new.values().7, true);
        table.update_as(&mut writes, own(1), *id, &some, &changed, guard)?;
        let now = table.read_as(own(1), *id, &some, guard).unwrap();
        let plain = |row: <(Option<Str>, i64, Str, bool) as Row>::Values<'_>| {
            (row.0.map(|text| text.as_str().to_owned()), row.1, row.2.as_str().to_owned(), row.3)
        };
        assert_eq!(plain(now), plain(changed), "seed {seed}");
        let before = table.read_as(other(1), *id, &columns, guard).unwrap();
        assert_eq!(show(&<Everything as Row>::cells(&before)), *typed, "seed {seed}");
        assert_eq!(shown(&table, other(1), *id, guard).as_ref(), Some(typed), "seed {seed}");
    }
    writes.roll_back(writes_begin(), guard);
    for (id, typed) in found.iter().flatten() {
        assert_eq!(shown(&table, own(1), *id, guard).as_ref(), Some(typed), "seed {seed}: taken back");
    }
    Ok(())
}

/// The mark of an empty write set.
fn writes_begin() -> Mark {
    WriteSet::new(owner(), None).mark()
}

#[test]
fn a_range_gives_rows_in_order_and_returns_where_it_ended() -> Result<()> {
    let (table, index) = table();
    let columns = table.projection::<Everything>(&ids()).unwrap();
    let id = table.projection::<(i32,)>(&[ColumnId(0)]).unwrap();
    let guard = &pin();
    let mut writes = write_set(&table);
    let random = &mut Random::seeded(5);
    for number in (0..100).rev() {
        table.insert_as(&mut writes, own(0), &columns, &Row0::random(number * 2, random).values(), guard)?;
    }
    let key = |number: i32| {
        let mut key = crate::KeyBuffer::new();
        index.encode(&[Cell::i32(number)], &mut key);
        key
    };
    let (low, high) = (key(31), key(51));
    let bounds = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
    for (reverse, expected) in [(false, [32, 34, 36]), (true, [50, 48, 46])] {
        let mut seen = Vec::new();
        let end = table.range_as(&index, bounds, reverse, own(0), &id, guard, &mut |_, (number,)| {
            seen.push(number);
            seen.len() < 3
        });
        assert_eq!(seen, expected);
        assert_eq!(end, Some(key(expected[2])));
    }
    Ok(())
}

#[test]
fn setting_an_indexed_column_moves_the_row_to_its_new_key() -> Result<()> {
    let (table, index) = table();
    let columns = table.projection::<Everything>(&ids()).unwrap();
    let id = table.projection::<(i32,)>(&[ColumnId(0)]).unwrap();
    let guard = &pin();
    let mut writes = write_set(&table);
    let random = &mut Random::seeded(6);
    for number in [1, 2] {
        table.insert_as(&mut writes, own(0), &columns, &Row0::random(number, random).values(), guard)?;
    }
    let find = |number: i32| {
        let mut found = Vec::new();
        table.find_many_as::<(i32,), (i32,)>(&index, &[(number,)], own(0), &id, guard, &mut |_, row| {
            found.extend(row);
        });
        found.pop()
    };
    let (row, _) = find(1).unwrap();
    let refused = table.update_as(&mut writes, own(0), row, &id, &(2,), guard).unwrap_err();
    assert_eq!(refused.state(), SqlState::UNIQUE_VIOLATION);
    table.update_as(&mut writes, own(0), row, &id, &(3,), guard)?;
    assert_eq!((find(1), find(3)), (None, Some((row, (3,)))));
    Ok(())
}

#[test]
fn a_type_that_does_not_fit_is_refused() {
    let (table, index) = table();
    let misfit = |column: u16| Some(Misfit::Type(ColumnId(column)));
    assert_eq!(table.projection::<(i64,)>(&[ColumnId(0)]).err(), misfit(0));
    assert_eq!(table.projection::<(i64,)>(&[ColumnId(8)]).err(), misfit(8), "the column is nullable");
    assert_eq!(
        table.projection::<(Option<i32>,)>(&[ColumnId(0)]).err(),
        misfit(0),
        "the column is not nullable"
    );
    assert_eq!(
        table.projection::<(i32, i64)>(&[0, 5].map(ColumnId)).err(),
        misfit(5),
        "the column is a double"
    );
    assert_eq!(table.projection::<[Str; 2]>(&[7, 9].map(ColumnId)).err(), misfit(9));
    let count = Misfit::Count { columns: 1, fields: 2 };
    assert_eq!(table.projection::<(i32, i32)>(&[ColumnId(0)]).err(), Some(count));
    assert_eq!(index.key_fits::<(i32, i32)>(), Err(count));
    assert_eq!(index.key_fits::<(Str,)>(), Err(Misfit::Type(ColumnId(0))));
    assert_eq!(index.key_fits::<(i32,)>(), Ok(()));
}

#[test]
#[should_panic(expected = "a projection belongs to one table")]
fn a_projection_of_another_table_is_refused() {
    let ((table, _), (elsewhere, _)) = (table(), table());
    let columns = elsewhere.projection::<Everything>(&ids()).unwrap();
    let random = &mut Random::seeded(7);
    let row = Row0::random(1, random);
    let _ = table.insert_as(&mut write_set(&table), own(0), &columns, &row.values(), &pin());
}

#[test]
fn slices_and_folds_of_a_scan_hold_what_the_snapshot_sees() -> Result<()> {
    let (table, _) = table();
    let columns = table.projection::<Everything>(&ids()).unwrap();
    let numbers = table.projection::<(i32, i16, i64, f32, f64)>(&[0, 2, 3, 4, 5].map(ColumnId)).unwrap();
    let guard = &pin();
    let mut writes = write_set(&table);
    let random = &mut Random::seeded(8);
    let count = if cfg!(miri) { 70 } else { 5_000 };
    for id in 0..count {
        table.insert_as(&mut writes, own(0), &columns, &Row0::random(id, random).values(), guard)?;
    }
    writes.stamp(Time(1));
    let mut writes = write_set(&table);
    let id = table.projection::<(i64,)>(&[ColumnId(3)]).unwrap();
    let rows = || {
        let mut rows = Vec::new();
        let scan = table.scan_as(other(1), &numbers);
        while scan.next_vectors::<(i32, i16, i64, f32, f64)>(guard, &mut |(a, b, c, d, e)| {
            assert!(a.len() == b.len() && a.len() <= 2048);
            rows.extend((0..a.len()).map(|at| (a[at], b[at], c[at], d[at], e[at])));
        }) {}
        rows
    };
    // Sums that do not depend on the order: of values, and of values with their places.
    let fold = || {
        let mut sums = (0, 0i64, 0i64, 0f64);
        let scan = table.scan_as(other(1), &numbers);
        while scan.fold_next(
            guard,
            &mut sums,
            &|sums: &mut (u32, i64, i64, f64), row: (i32, i16, i64, f32, f64)| {
                sums.0 += 1;
                sums.1 = sums.1.wrapping_add(row.2.wrapping_mul(i64::from(row.0)));
                sums.2 += i64::from(row.1);
                sums.3 += f64::from(row.3) - row.4;
            },
        ) {}
        sums
    };
    let before = rows();
    assert_eq!(before.len(), count as usize);
    let folded = fold();
    assert_eq!(folded.0, count as u32);
    assert_eq!(
        folded.1,
        before.iter().fold(0i64, |sum, row| sum.wrapping_add(row.2.wrapping_mul(i64::from(row.0))))
    );
    assert_eq!(folded.2, before.iter().map(|row| i64::from(row.1)).sum::<i64>());
    assert_eq!(folded.3, before.iter().map(|row| f64::from(row.3) - row.4).sum::<f64>());
    for (number, row) in before.iter().enumerate() {
        assert_eq!(*row, (number as i32, row.2 as i16, row.2, row.2 as i32 as f32, row.2 as i32 as f64));
    }
    let scan = table.scan(other(1), &[], true);
    let ids = scan.next_batch(guard).unwrap().row_ids.unwrap();
    for row in ids.values().iter().step_by(7) {
        table.update_as(&mut writes, own(1), RowId::from_bits(*row), &id, &(-1,), guard)?;
    }
    assert!(rows() == before, "no commit has changed the rows");
    assert_eq!(fold(), folded);
    Ok(())
}
