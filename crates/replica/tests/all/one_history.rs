//! A checker: what is committed on any server is of one history.
//!
//! - A point of the log that is committed on one server is committed on no other one with another checksum.
//! - Only a server that writes the log commits more of it than has been committed before.
//! - The server that begins an epoch has all that is committed ("leader completeness": Ongaro, "Consensus: Bridging Theory and
//!   Practice", figure 3.2).
//! - A replica shows only what is committed.

use firn_base::{Lsn, SqlState};
use firn_log::LogPoint;
use firn_txn::Engine;
use std::collections::BTreeMap;

/// What has been committed.
pub struct OneHistory {
    /// The checksums at some ends of committed groups.
    checksums: BTreeMap<Lsn, u32>,
    newest: LogPoint,
}

impl OneHistory {
    /// Of a cluster whose first server has committed all of its log.
    pub fn from(first: &Engine) -> OneHistory {
        OneHistory { checksums: BTreeMap::new(), newest: first.committed_point() }
    }

    /// Checks what servers have committed, and notes it.
    pub fn check<'e>(&mut self, engines: impl Iterator<Item = &'e Engine> + Clone) {
        let writes = |engine: &&Engine| engine.written_epoch().is_some();
        let before = self.newest;
        for point in engines.clone().filter(writes).map(Engine::committed_point) {
            if point.lsn > self.newest.lsn {
                self.newest = point;
            }
        }
        if self.newest.lsn > before.lsn {
            engines.clone().filter(writes).for_each(|engine| self.check_primary(engine));
        }
        for (at, engine) in engines.enumerate() {
            let point = engine.committed_point();
            assert!(
                point.lsn <= self.newest.lsn,
                "server {at} takes more for committed than {:?}: {point:?}",
                self.newest
            );
            let known = *self.checksums.entry(point.lsn).or_insert(point.checksum);
            assert!(known == point.checksum, "server {at} has another history at {point:?}");
            let shown = engine.visible_lsn();
            assert!(
                !engine.is_replica() || shown <= point.lsn,
                "server {at} shows {shown:?}, beyond {point:?}"
            );
        }
    }

    /// Checks a server that writes the log: in a later epoch than that of what is committed, it has all of that.
    fn check_primary(&self, engine: &Engine) {
        if engine.written_epoch().is_some_and(|epoch| epoch > self.newest.epoch) {
            self.check_successor(engine);
        }
    }

    /// Checks a server that begins an epoch.
    pub fn check_successor(&self, engine: &Engine) {
        match engine.has_point(self.newest) {
            Ok(has) => assert!(has, "the primary lacks what is committed: {:?}", self.newest),
            // A checkpoint has replaced the log there, which was committed.
            Err(error) => assert_eq!(error.state(), SqlState::UNDEFINED_FILE, "{error}"),
        }
    }
}
