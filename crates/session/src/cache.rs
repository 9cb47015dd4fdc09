//! Plans shared by the connections of a database.
//!
//! The key is the text of a statement, or the form that statements share which differ in literals ([`firn_sql::literals`]), and the
//! types of the parameters. A cached plan is used
//! only if the caller's catalog has the same of all objects that it was made of, and the facts of the caller are those that it is bound to;
//! otherwise it is replaced.
//! Two generations bound the size: a young generation that has too many plans, or too many bytes, becomes the old one, and the plans
//! of the previous old generation that were not used since are dropped.
//!
//! A plan pins the tables that it reads, with all their rows, and dropped or truncated tables must release their memory. So at the end of
//! DDL the plans are dropped that do not hold in the newest catalog ([`firn_txn::dependencies`]); plans of other objects remain.
//! Statements that are prepared keep their plans likewise ([`crate::statement`]).
//!
//! Invariant: every plan holds in the newest catalog, except between its publication and the end of its DDL. Plans that only one
//! transaction can use, since it reads an older catalog or one that it has changed, are in a cache of its own.

use firn_base::TypeId;
use firn_base::sync::{Arc, Mutex};
use firn_sql::Plan;
use firn_txn::Engine;
use firn_txn::dependencies::CatalogLookup;
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
        let generations = self.generations.lock();
        let found = generations.young.get(&key).or_else(|| generations.old.get(&key));
        let plan = found?.clone();
        drop(generations);
        // Looking it over takes long after DDL. Another caller may be able to use a plan that this one cannot.
        usable(&plan).then_some(())?;
        let mut generations = self.generations.lock();
        if let Some(plan) = generations.old.remove(&key) {
            generations.put(key, plan);
        }
        Some(plan)
    }

    /// Keeps a plan for all transactions. Returns whether it does: it keeps none that does not hold in the newest catalog.
    pub fn put(&self, text: &str, types: &[Option<TypeId>], plan: &Arc<Plan>, engine: &Engine) -> bool {
        let mut generations = self.generations.lock();
        // Asked for under the lock: of DDL that commits later the end comes later, and looks at this plan.
        let holds = plan.holds_in_newest(&CatalogLookup::of_few(&engine.catalog()));
        if holds {
            generations.keep(text, types, plan);
        }
        holds
    }

    /// Keeps a plan for the transaction that owns the cache.
    pub fn put_own(&self, text: &str, types: &[Option<TypeId>], plan: &Arc<Plan>) {
        self.generations.lock().keep(text, types, plan);
    }

    /// DDL has ended: drops the plans that do not hold in what was the newest catalog after that, also those of a catalog that was
    /// rolled back.
    pub fn discard_outdated(&self, newest: &CatalogLookup<'_>) {
        let mut generations = self.generations.lock();
        let Generations { young, old, .. } = &mut *generations;
        let is_outdated = |_: &Key, plan: &mut Arc<Plan>| !plan.holds_in_newest(newest);
        let gone: Vec<(Key, Arc<Plan>)> =
            young.extract_if(is_outdated).chain(old.extract_if(is_outdated)).collect();
        generations.young_bytes = generations.young.iter().map(|(key, plan)| bytes(key, plan)).sum();
        // Tables may be freed with them, which takes time.
        drop(generations);
        drop(gone);
    }

    /// Whether all plans hold in the newest catalog.
    #[cfg(test)]
    pub fn all_hold(&self, engine: &Engine) -> bool {
        let generations = self.generations.lock();
        let catalog = engine.catalog();
        let mut plans = generations.young.values().chain(generations.old.values());
        plans.all(|plan| plan.holds_in_newest(&CatalogLookup::of_few(&catalog)))
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
    /// As [`Generations::put`], unless the plan or its key is too large.
    fn keep(&mut self, text: &str, types: &[Option<TypeId>], plan: &Arc<Plan>) {
        if text.len() <= LONGEST_TEXT && plan.memory() <= GENERATION_BYTES / 4 {
            self.put((Box::from(text), Box::from(types)), plan.clone());
        }
    }

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
