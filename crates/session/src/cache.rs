//! Plans shared by the connections of a database.
//!
//! The key is the statement's text and the parameter types that were declared. A cached plan is used
//! only if it is bound to the catalog and the facts of the caller; otherwise it is replaced.
//! Two generations bound the size: a young generation that has too many plans, or too many bytes, becomes the old one, and the plans
//! of the previous old generation that were not used since are dropped.
//!
//! A plan pins the tables that it reads, with all their rows. So at the end of DDL, plans of other
//! catalogs are dropped: no statement could use them, and dropped or truncated tables must release their memory.
//! Statements that are prepared keep their plans likewise ([`crate::statement`]).

use firn_base::TypeId;
use firn_base::sync::{Arc, Mutex};
use firn_sql::Plan;
use std::collections::HashMap;

/// Plans of one generation.
const GENERATION_PLANS: usize = 512;
/// The largest estimate of their bytes, without tables.
const GENERATION_BYTES: usize = 16 << 20;
/// Longer texts are not kept; clients rarely send them twice.
const LONGEST_TEXT: usize = 16 << 10;

type Key = (Box<str>, Box<[Option<TypeId>]>);

/// See the module.
#[derive(Default)]
pub(crate) struct PlanCache {
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Key, Arc<Plan>>,
    old: HashMap<Key, Arc<Plan>>,
    /// The estimated bytes of the young ones.
    young_bytes: usize,
    /// The newest committed catalog version that the cache has seen. Plans of older ones are not kept.
    catalog_version: u64,
}

impl PlanCache {
    /// The plan of a statement, if there is one that the caller can use.
    pub fn get(
        &self,
        text: &str,
        types: &[Option<TypeId>],
        usable: impl Fn(&Plan) -> bool,
    ) -> Option<Arc<Plan>> {
        let key = (Box::from(text), Box::from(types));
        let mut generations = self.generations.lock();
        if let Some(plan) = generations.young.get(&key) {
            return usable(plan).then(|| plan.clone());
        }
        let plan = generations.old.remove(&key).filter(|plan| usable(plan))?;
        generations.put(key, plan.clone());
        Some(plan)
    }

    /// Keeps a plan.
    pub fn put(&self, text: &str, types: &[Option<TypeId>], plan: Arc<Plan>) {
        if text.len() > LONGEST_TEXT || plan.memory() > GENERATION_BYTES / 4 {
            return;
        }
        let mut generations = self.generations.lock();
        // A transaction that still reads an older catalog may arrive late.
        if plan.catalog_version >= generations.catalog_version {
            generations.put((Box::from(text), Box::from(types)), plan);
        }
    }

    /// DDL has ended, and this is the version of the catalog now: plans of all other catalogs are dropped, also those of
    /// a catalog that was rolled back.
    pub fn keep_only(&self, catalog_version: u64) {
        let mut generations = self.generations.lock();
        // Two transactions that have committed one after the other may arrive here in reverse order.
        if catalog_version < generations.catalog_version {
            return;
        }
        generations.catalog_version = catalog_version;
        let Generations { young, old, .. } = &mut *generations;
        let others = |_: &Key, plan: &mut Arc<Plan>| plan.catalog_version != catalog_version;
        let gone: Vec<(Key, Arc<Plan>)> = young.extract_if(others).chain(old.extract_if(others)).collect();
        generations.young_bytes = generations.young.iter().map(|(key, plan)| bytes(key, plan)).sum();
        // Tables may be freed with them, which takes time.
        drop(generations);
        drop(gone);
    }

    /// Whether all plans are bound to this version of the catalog.
    #[cfg(test)]
    pub fn are_all_of(&self, catalog_version: u64) -> bool {
        let generations = self.generations.lock();
        let mut plans = generations.young.values().chain(generations.old.values());
        plans.all(|plan| plan.catalog_version == catalog_version)
    }

    /// What they take.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let generations = self.generations.lock();
        let all = |plans: &HashMap<Key, Arc<Plan>>| -> usize {
            plans.iter().map(|(key, plan)| bytes(key, plan)).sum()
        };
        assert_eq!(generations.young_bytes, all(&generations.young));
        all(&generations.young) + all(&generations.old)
    }

    /// How many plans there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        let generations = self.generations.lock();
        generations.young.len() + generations.old.len()
    }
}

impl Generations {
    fn put(&mut self, key: Key, plan: Arc<Plan>) {
        let more = bytes(&key, &plan);
        if self.young.len() >= GENERATION_PLANS || self.young_bytes + more > GENERATION_BYTES {
            (self.old, self.young_bytes) = (std::mem::take(&mut self.young), 0);
        }
        // One that can no longer be used is replaced.
        if let Some(before) = self.young.get(&key) {
            self.young_bytes -= bytes(&key, before);
        }
        self.young_bytes += more;
        self.young.insert(key, plan);
    }
}

/// About how many bytes a plan takes with its key.
fn bytes((text, types): &Key, plan: &Plan) -> usize {
    plan.memory() + text.len() + size_of_val(&**types)
}
