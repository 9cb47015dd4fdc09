//! No bytes in a segment make the log's reader panic, nor bytes in a group with a right checksum.
#![no_main]

use firn_base::disk::{Disk, SimulatedDisk};
use firn_base::{Epoch, Lsn};
use firn_log::format::{
    DATA_START, FORMAT_VERSION, GROUP_ALIGNMENT, GROUP_HEADER_LEN, Seal, SegmentHeader, seal_group,
};
use firn_log::{DatabaseId, LogPoint, Reader, Record, Records};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

const DATABASE: DatabaseId = DatabaseId([7; 16]);

/// Reads all that a record holds.
fn walk(records: Records<'_>) {
    for record in records.flatten() {
        match record {
            Record::Insert { cells, .. } => cells.for_each(drop),
            Record::InsertBatch { columns, .. } => columns.flatten().for_each(|cells| cells.for_each(drop)),
            Record::Update { cells, .. } => cells.for_each(drop),
            Record::Delete { .. }
            | Record::CatalogChange(_)
            | Record::SequenceAdvance { .. }
            | Record::Loaded(_)
            | Record::Epoch(_)
            | Record::BlockCompact { .. }
            | Record::BlockEmptied { .. }
            | Record::RestorePoint(_) => {}
            Record::Spilled { chunks, .. } => chunks.for_each(drop),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    walk(Records::new(bytes));
    let Some((choice, rest)) = bytes.split_first() else { return };
    let mut data = rest.to_vec();
    if choice & 1 == 1 {
        data = vec![0; GROUP_HEADER_LEN];
        data.extend_from_slice(rest);
        data.resize(data.len().next_multiple_of(GROUP_ALIGNMENT).max(GROUP_HEADER_LEN + GROUP_ALIGNMENT), 0);
        let seal = Seal {
            entries: u32::from(choice >> 1),
            lsn: Lsn(0),
            salt: 1,
            epoch: Epoch(1),
            wall_time: 0,
            previous: 0,
        };
        seal_group(std::slice::from_mut(&mut data), &seal);
    }
    let file_bytes = (DATA_START + data.len() as u64 + 1).next_multiple_of(GROUP_ALIGNMENT as u64);
    let header = SegmentHeader {
        version: FORMAT_VERSION,
        number: 0,
        epoch: Epoch(1),
        first: Lsn(0),
        file_bytes,
        database: DATABASE,
        salt: 1,
    };
    let directory = Path::new("log");
    let disk = SimulatedDisk::new();
    disk.create_directory(directory).expect("nothing fails on this disk");
    let file = disk.create(&directory.join(header.name().to_string())).expect("nothing fails on this disk");
    file.write_at(&vec![0; file_bytes as usize], 0).expect("nothing fails on this disk");
    file.write_at(&header.encode(), 0).expect("nothing fails on this disk");
    file.write_at(&data, DATA_START).expect("nothing fails on this disk");
    let Ok(mut reader) = Reader::open(&*disk, directory, DATABASE, LogPoint::START) else { return };
    while let Ok(Some(group)) = reader.next_group() {
        group.entries().for_each(|entry| walk(entry.records()));
    }
});
