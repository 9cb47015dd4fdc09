//! TABLESAMPLE: some of the rows of a table, or of its blocks.
//!
//! Whether a row belongs to a sample is a function of its id and the seed: so it does not depend on who asks for it, when or in which
//! order, and the same seed gives the same sample as long as rows stay where they are. With BERNOULLI the id is that of the row,
//! with SYSTEM that of its block.

use crate::expression::Expression;
use crate::pipeline::{Output, SlotId, Stage, StagePlan, Work};
use crate::template::Template;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Error, Result, RowId, SqlState};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Datum, Selection, Vector};

/// A sample.
pub struct SamplePlan {
    /// Where the row's id is.
    pub row: usize,
    /// Whether whole blocks are taken.
    pub by_block: bool,
    /// The share in percent, and the seed of REPEATABLE: double precision, over the columns of the chunk.
    pub arguments: Template<(Expression, Option<Expression>)>,
    /// Whether these use columns.
    pub use_columns: bool,
    /// Holds the seed of a sample without REPEATABLE.
    pub seed: SlotId,
}

struct Sample {
    row: usize,
    by_block: bool,
    arguments: (Expression, Option<Expression>),
    seed: u64,
}

impl StagePlan for SamplePlan {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Stage>> {
        let mut arguments = self.arguments.copy();
        if !self.use_columns {
            // A mistake is one of an empty table as well.
            let one = Rows::all(1);
            let percent = arguments.0.evaluate_on(&work.scope(), &[], one)?;
            let seed = arguments.1.as_mut().map(|seed| seed.evaluate_on(&work.scope(), &[], one));
            checked(&percent, seed.transpose()?.as_ref(), 0)?;
        }
        let seed = work.run.filled_or(self.seed, || Ok(Arc::new(Random::from_entropy().next_u64())))?;
        Ok(Box::new(Sample { row: self.row, by_block: self.by_block, arguments, seed: *seed }))
    }
}

impl Stage for Sample {
    fn push(&mut self, work: Work<'_>, chunk: Chunk) -> Result<Output> {
        let percent = self.arguments.0.evaluate(&work.scope(), &chunk)?;
        let seed = self.arguments.1.as_mut().map(|seed| seed.evaluate(&work.scope(), &chunk));
        let seed = seed.transpose()?;
        let mut positions = Vec::with_capacity(chunk.count());
        chunk.rows().try_each(|row| {
            let (percent, seed) = checked(&percent, seed.as_ref(), row)?;
            let Datum::Int64(bits) = chunk.vectors()[self.row].datum(row) else {
                panic!("rows of tables have ids")
            };
            let id = RowId::from_bits(bits as u64);
            let unit = if self.by_block { id.block().0 } else { id.to_bits() };
            // Of the upper half, so that 100 percent are all.
            let drawn = mixed(mixed(unit) ^ seed.unwrap_or(self.seed)) >> 32;
            if (drawn as f64) < percent / 100.0 * 2f64.powi(32) {
                positions.push(row as u16);
            }
            Ok::<(), Error>(())
        })?;
        Ok(Output::Last(chunk.with_selection(Some(Selection::new(positions)))))
    }
}

/// The share and the seed for one row. 2202H, 2202G if they are none.
fn checked(percent: &Vector, seed: Option<&Vector>, row: usize) -> Result<(f64, Option<u64>)> {
    let invalid = |message| Error::new(SqlState::new("2202H"), message);
    let percent = match percent.datum(row) {
        Datum::Float64(percent) if (0.0..=100.0).contains(&percent) => percent,
        Datum::Null => return Err(invalid("TABLESAMPLE parameter cannot be null")),
        _ => return Err(invalid("sample percentage must be between 0 and 100")),
    };
    let seed = match seed.map(|seed| seed.datum(row)) {
        None => None,
        Some(Datum::Float64(seed)) => Some(mixed((seed + 0.0).to_bits())),
        Some(_) => {
            let message = "TABLESAMPLE REPEATABLE parameter cannot be null";
            return Err(Error::new(SqlState::new("2202G"), message));
        }
    };
    Ok((percent, seed))
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
