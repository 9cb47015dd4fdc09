//! Locks of rows, and samples of tables: operators that need the ids of rows.

use super::{Compile, Needed, Part, PlannedScan, with_uses};
use crate::stages::{LimitBounds, LockPlan, LockedRows, SamplePlan};
use crate::template::Template;
use crate::write::column_id;
use firn_base::{ColumnId, Result, Type, TypeId};
use firn_plan::operator::{LockStrength, LockTarget, LockWait, ROW_ID, Scan};
use firn_plan::{ColumnInfo, NodeId, Operator, Scalar};
use firn_storage::RowLock;

impl Compile<'_> {
    /// Locks, below a limit if there is one.
    pub(super) fn lock(
        &mut self,
        node: NodeId,
        input: NodeId,
        targets: &[LockTarget],
        needed: &Needed,
        limit: Option<LimitBounds>,
    ) -> Result<Part> {
        let mut below = needed.clone();
        below.extend(targets.iter().map(|target| target.row));
        let first_scan = self.scans.len();
        let mut part = self.node(input, &below)?;
        let mut read = vec![None; targets.len()];
        for (target, read) in
            targets.iter().zip(&mut read).filter(|(target, _)| target.wait == LockWait::Skip)
        {
            let is_of = |scan: &&mut PlannedScan| scan.columns.contains(&(target.row, ROW_ID));
            if let Some(scan) = self.scans[first_scan..].iter_mut().find(is_of) {
                scan.is_logged = false;
                let attributes = scan.columns.iter().map(|(_, attribute)| *attribute);
                *read = Some(attributes.filter(|attribute| *attribute != ROW_ID).map(column_id).collect());
            }
        }
        let target = |(target, read): (&LockTarget, Option<Vec<ColumnId>>)| LockedRows {
            source: target.source,
            row: part.layout.position(target.row).expect("the input gives it"),
            lock: match target.strength {
                LockStrength::KeyShare => RowLock::KeyShare,
                LockStrength::Share => RowLock::Share,
                LockStrength::NoKeyUpdate => RowLock::NoKeyUpdate,
                LockStrength::Update => RowLock::Update,
            },
            wait: target.wait,
            read,
        };
        let targets = targets.iter().zip(read).map(target).collect();
        part.push(LockPlan { targets, limit: limit.map(Template::new) });
        part.is_serial = true;
        Ok(self.passed_on(node, part))
    }

    /// The locks that a limit is above: nothing between them changes the number of rows.
    pub(super) fn locks_below(&self, mut node: NodeId) -> bool {
        loop {
            node = match &self.plan[node] {
                Operator::Lock { .. } => return true,
                Operator::Map { input, .. } => *input,
                _ => return false,
            }
        }
    }

    pub(super) fn sample(
        &mut self,
        node: NodeId,
        input: NodeId,
        by_block: bool,
        (percent, seed): (&Scalar, Option<&Scalar>),
        needed: &Needed,
    ) -> Result<Part> {
        let Operator::Scan(scan) = &self.plan[input] else { panic!("tables are sampled") };
        let mut scan: Scan = scan.clone();
        let row = match scan.columns.iter().find(|(_, attribute)| *attribute == ROW_ID) {
            Some((column, _)) => *column,
            None => {
                let row = self.columns.add(ColumnInfo::new(Type::new(TypeId::INT8), false));
                scan.columns.push((row, ROW_ID));
                row
            }
        };
        let mut below = with_uses(needed, std::iter::once(percent).chain(seed));
        below.insert(row);
        let mut part = self.scan(input, &scan, &below)?;
        let arguments = (
            self.scalars.general(percent, &part.layout)?,
            seed.map(|seed| self.scalars.general(seed, &part.layout)).transpose()?,
        );
        let mut use_columns = false;
        for scalar in std::iter::once(percent).chain(seed) {
            scalar.for_each_column(&mut |_| use_columns = true);
        }
        let plan = SamplePlan {
            row: part.layout.position(row).expect("the scan gives it"),
            by_block,
            arguments: Template::new(arguments),
            use_columns,
            seed: self.slot(part.depends.clone()),
        };
        part.push(plan);
        Ok(self.passed_on(node, part))
    }
}
