//! Statistics of sources, for the planner.
//!
//! ```text
//! let statistics = SourceFacts::new(&sources);
//! optimise(&mut plan, &registry, &RegistryEvaluator::new(&registry, &context), &statistics);
//! ```
//!
//! A key counts if its index keeps it unique after each statement and none of its columns may be NULL. Facts are asked of each
//! source once.

use crate::source::{CandidateIndex, Source, SourceColumn, Sources};
use firn_base::sync::{Arc, Mutex};
use firn_plan::operator::SourceId;
use firn_plan::statistics::{Index, Reference, Statistics};
use std::collections::HashMap;

/// The statistics of the sources of one statement.
pub struct SourceFacts<'a> {
    sources: &'a dyn Sources,
    known: Mutex<HashMap<SourceId, Arc<Facts>>>,
}

struct Facts {
    rows: f64,
    columns: Vec<SourceColumn>,
    indexes: Vec<CandidateIndex>,
    relation: Option<u32>,
    references: Vec<Reference>,
}

impl<'a> SourceFacts<'a> {
    /// Of these sources.
    pub fn new(sources: &'a dyn Sources) -> SourceFacts<'a> {
        SourceFacts { sources, known: Mutex::new(HashMap::new()) }
    }

    fn facts(&self, id: SourceId) -> Arc<Facts> {
        let facts = || Arc::new(Facts::of(&*self.sources.source(id)));
        self.known.lock().entry(id).or_insert_with(facts).clone()
    }
}

impl Facts {
    fn of(source: &dyn Source) -> Facts {
        Facts {
            rows: source.statistics().rows as f64,
            columns: source.columns(),
            indexes: source.indexes(),
            relation: source.relation(),
            references: source.references(),
        }
    }

    fn nullable(&self, attribute: i16) -> bool {
        self.columns.iter().find(|column| column.attribute == attribute).is_none_or(|column| column.nullable)
    }

    fn keys(&self) -> impl Iterator<Item = &[i16]> {
        let is_key = |index: &&CandidateIndex| {
            index.unique && !index.attributes.iter().any(|attribute| self.nullable(*attribute))
        };
        self.indexes.iter().filter(is_key).map(|index| &index.attributes[..])
    }
}

impl Statistics for SourceFacts<'_> {
    fn rows(&self, source: SourceId) -> f64 {
        self.facts(source).rows
    }

    fn distinct(&self, source: SourceId, attribute: i16) -> Option<f64> {
        let facts = self.facts(source);
        // A key's column with NULLs has as many values as about the rows too.
        let is_unique = |index: &CandidateIndex| index.unique && index.attributes == [attribute];
        facts.indexes.iter().any(is_unique).then(|| facts.rows.max(1.0))
    }

    fn keys(&self, source: SourceId) -> Vec<Vec<i16>> {
        self.facts(source).keys().map(<[i16]>::to_vec).collect()
    }

    fn indexes(&self, source: SourceId) -> Vec<Index> {
        let index = |index: &CandidateIndex| Index {
            attributes: index.attributes.clone(),
            descending: index.descending.clone(),
            nulls_first: index.nulls_first.clone(),
            unique: index.unique,
        };
        self.facts(source).indexes.iter().map(index).collect()
    }

    fn relation(&self, source: SourceId) -> Option<u32> {
        self.facts(source).relation
    }

    fn references(&self, source: SourceId) -> Vec<Reference> {
        self.facts(source).references.clone()
    }
}
