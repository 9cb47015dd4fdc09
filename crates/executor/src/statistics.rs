//! Statistics of sources, for the planner.
//!
//! ```text
//! let statistics = SourceFacts::new(&sources, snapshot, &registry, &context);
//! optimise(&mut plan, &registry, &RegistryEvaluator::new(&registry, &context), &statistics);
//! ```
//!
//! A key counts if its index keeps it unique after each statement and none of its columns may be NULL. Facts are asked of each
//! source once. The share of rows that conditions keep is counted among the rows of the source's sample.

use crate::expression::{Compiler, Conditions, Layout, Scope, representation_of};
use crate::source::{CandidateIndex, Source, SourceColumn, Sources};
use firn_base::Snapshot;
use firn_base::sync::{Arc, Mutex};
use firn_plan::operator::{ROW_ID, Scan, SourceId};
use firn_plan::statistics::{Computed, Index, Reference, Statistics};
use firn_plan::{Column, Columns, Scalar};
use firn_vector::{Context, Registry};
use std::collections::HashMap;

/// The statistics of the sources of one statement.
pub struct SourceFacts<'a> {
    sources: &'a dyn Sources,
    snapshot: Snapshot,
    registry: &'a Registry,
    context: &'a Context<'a>,
    known: Mutex<HashMap<SourceId, Arc<Facts>>>,
    computed: HashMap<SourceId, Vec<Computed>>,
}

struct Facts {
    source: Arc<dyn Source>,
    rows: f64,
    columns: Vec<SourceColumn>,
    indexes: Vec<CandidateIndex>,
    relation: Option<u32>,
    references: Vec<Reference>,
}

impl<'a> SourceFacts<'a> {
    /// Of these sources, as a snapshot sees them.
    pub fn new(
        sources: &'a dyn Sources,
        snapshot: Snapshot,
        registry: &'a Registry,
        context: &'a Context<'a>,
    ) -> SourceFacts<'a> {
        let (known, computed) = (Mutex::new(HashMap::new()), HashMap::new());
        SourceFacts { sources, snapshot, registry, context, known, computed }
    }

    /// The same with columns that sources compute for their indexes.
    pub fn with_computed(self, computed: HashMap<SourceId, Vec<Computed>>) -> Self {
        SourceFacts { computed, ..self }
    }

    fn facts(&self, id: SourceId) -> Arc<Facts> {
        let facts = || Arc::new(Facts::of(self.sources.source(id)));
        self.known.lock().entry(id).or_insert_with(facts).clone()
    }
}

impl Facts {
    fn of(source: Arc<dyn Source>) -> Facts {
        Facts {
            rows: source.statistics().rows as f64,
            columns: source.columns(),
            indexes: source.indexes(),
            relation: source.relation(),
            references: source.references(),
            source,
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

    fn distinct(&self, source: SourceId, attributes: &[i16]) -> Option<f64> {
        let facts = self.facts(source);
        // A key's column with NULLs has as many values as about the rows too.
        let is_unique = |index: &CandidateIndex| {
            index.unique && index.attributes.iter().all(|attribute| attributes.contains(attribute))
        };
        match attributes.contains(&ROW_ID) || facts.indexes.iter().any(is_unique) {
            true => Some(facts.rows.max(1.0)),
            // Of other system columns nothing is known.
            false if attributes.iter().any(|attribute| *attribute < 0) => None,
            false => facts.source.distinct(attributes, self.snapshot),
        }
    }

    fn share(&self, scan: &Scan, conditions: &[&Scalar], columns: &Columns) -> Option<f64> {
        let asked = |column: Column| conditions.iter().any(|condition| condition.uses(|used| used == column));
        let read: Vec<(Column, i16)> = scan
            .columns
            .iter()
            .filter(|(column, attribute)| *attribute != ROW_ID && asked(*column))
            .copied()
            .collect();
        let attributes: Vec<i16> = read.iter().map(|(_, attribute)| *attribute).collect();
        let sample = self.facts(scan.source).source.sample(&attributes, self.snapshot)?;
        let layout: Layout =
            read.iter().map(|(column, _)| (*column, representation_of(columns[*column].ty))).collect();
        let compiler = Compiler { registry: self.registry, columns };
        let compiled = conditions.iter().map(|condition| compiler.scalar(condition, &layout));
        let compiled = compiled.collect::<firn_base::Result<Vec<_>>>().ok()?;
        let total = sample.length() as f64;
        // An error says nothing of the rows that the statement will reach.
        let scope = Scope { context: self.context, parameters: &[] };
        let chosen = Conditions::new(compiled).select(&scope, sample).ok()?;
        // None among them need not be none.
        Some((chosen.count() as f64).max(0.5) / total)
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

    fn computed(&self, source: SourceId) -> Vec<Computed> {
        self.computed.get(&source).cloned().unwrap_or_default()
    }

    fn relation(&self, source: SourceId) -> Option<u32> {
        self.facts(source).relation
    }

    fn references(&self, source: SourceId) -> Vec<Reference> {
        self.facts(source).references.clone()
    }
}
