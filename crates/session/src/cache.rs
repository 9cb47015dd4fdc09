//! Plans shared by the connections of a database.
//!
//! The key is the statement's text and the parameter types that were declared. A plan found there
//! counts only if it is bound to the catalog and the facts that the asker has; otherwise it is
//! replaced. Two generations bound the size: when the young one is full it becomes the old one,
//! and what nobody has asked for since is dropped with the old one before.

use firn_base::ParameterType;
use firn_base::sync::{Arc, Mutex};
use firn_sql::Plan;
use std::collections::HashMap;

/// Plans of one generation.
const GENERATION_PLANS: usize = 512;
/// Longer texts are not kept; they are not sent twice.
const LONGEST_TEXT: usize = 16 << 10;

type Key = (Box<str>, Box<[Option<ParameterType>]>);

/// See the module.
#[derive(Default)]
pub(crate) struct PlanCache {
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Key, Arc<Plan>>,
    old: HashMap<Key, Arc<Plan>>,
}

impl PlanCache {
    /// The plan of a statement, if there is one that the caller can use.
    pub fn get(
        &self,
        text: &str,
        types: &[Option<ParameterType>],
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
    pub fn put(&self, text: &str, types: &[Option<ParameterType>], plan: Arc<Plan>) {
        if text.len() <= LONGEST_TEXT {
            self.generations.lock().put((Box::from(text), Box::from(types)), plan);
        }
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
