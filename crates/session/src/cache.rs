//! Plans shared by the connections of a database.
//!
//! The key is the statement's text and the parameter types that were declared. A cached plan is used
//! only if it is bound to the catalog and the facts of the caller; otherwise it is replaced.
//! Two generations bound the size: a full young generation becomes the old one, and the plans of the previous
//! old generation that were not used since are dropped.
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
        if text.len() > LONGEST_TEXT {
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

    /// How many plans there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        let generations = self.generations.lock();
        generations.young.len() + generations.old.len()
    }
}

impl Generations {
    fn put(&mut self, key: Key, plan: Arc<Plan>) {
        if self.young.len() >= GENERATION_PLANS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, plan);
    }
}
