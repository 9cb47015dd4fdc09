//! Where the epochs of the log have begun: so that a position in an epoch is known to be lost, because the log of a later one begins before
//! it.

use firn_base::{Epoch, Lsn};
use serde::{Deserialize, Serialize};

/// How many are known: an epoch begins whenever a primary is opened.
const MOST: usize = 4096;

/// Epochs and where they have begun, both ascending.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Epochs(Vec<(u64, u64)>);

impl Epochs {
    /// Notes that the log of an epoch begins at a position. What is known of that place or behind it was in epochs that have written
    /// nothing, or in another history.
    pub fn begin(&mut self, epoch: Epoch, at: Lsn) {
        while self.0.pop_if(|(other, begin)| *other >= epoch.0 || *begin >= at.0).is_some() {}
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push((epoch.0, at.0));
    }

    /// The same for the epoch of a group that begins at a position, unless the epoch has begun before. Epochs that are known to begin there
    /// or behind it may be of a history that was cut.
    pub fn note(&mut self, epoch: Epoch, at: Lsn) {
        while self.0.pop_if(|(other, begin)| *other != epoch.0 && *begin >= at.0).is_some() {}
        if self.0.last().is_none_or(|(last, _)| *last != epoch.0) {
            self.begin(epoch, at);
        }
    }

    /// Where the log of an epoch ends, if a later one has begun. Nothing of an epoch of another history is here: the numbers say nothing of
    /// where that one has left this one.
    pub fn end_of(&self, epoch: Epoch) -> Option<Lsn> {
        let later = self.0.partition_point(|(other, _)| *other <= epoch.0);
        let next = self.0.get(later)?;
        // The epochs before the first one are not known.
        let before = later.checked_sub(1).map(|before| self.0[before]);
        let is_of_another = before.is_some_and(|(other, _)| other != epoch.0);
        Some(Lsn(if is_of_another { self.0[0].1 } else { next.1 }))
    }

    /// The epoch of what is before a position.
    pub fn before(&self, lsn: Lsn) -> Option<Epoch> {
        let after = self.0.partition_point(|(_, begin)| *begin < lsn.0);
        after.checked_sub(1).map(|at| Epoch(self.0[at].0))
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_ends_where_the_next_one_that_has_written_begins() {
        let mut epochs = Epochs::default();
        assert_eq!(epochs.end_of(Epoch(1)), None);
        for (epoch, at) in [(1, 0), (2, 100), (3, 200), (4, 200), (5, 300)] {
            epochs.begin(Epoch(epoch), Lsn(at));
        }
        let ends = |epochs: &Epochs| {
            [0, 1, 2, 3, 4, 5, 9].map(|epoch| epochs.end_of(Epoch(epoch)).map_or(-1, |end| end.0 as i64))
        };
        // The third has written nothing, so whatever is of it is of another history.
        assert_eq!(ends(&epochs), [0, 100, 200, 0, 300, -1, -1]);
        let before =
            [0, 1, 200, 201, 300, 999].map(|lsn| epochs.before(Lsn(lsn)).map_or(-1, |at| at.0 as i64));
        assert_eq!(before, [-1, 1, 2, 4, 4, 5]);
        epochs.note(Epoch(5), Lsn(400));
        assert_eq!(epochs.end_of(Epoch(4)), Some(Lsn(300)));
        // Another history, which leaves this one in epoch 4.
        epochs.begin(Epoch(1004), Lsn(250));
        assert_eq!(ends(&epochs), [0, 100, 200, 0, 250, 0, 0]);
        // One that had written nothing, and was of a higher number.
        epochs.begin(Epoch(9000), Lsn(260));
        epochs.note(Epoch(2000), Lsn(260));
        epochs.note(Epoch(2000), Lsn(280));
        assert_eq!((epochs.end_of(Epoch(1004)), epochs.end_of(Epoch(9000))), (Some(Lsn(260)), None));
        // A log is read again from an earlier place on.
        epochs.note(Epoch(1004), Lsn(255));
        assert_eq!(epochs.before(Lsn(251)), Some(Epoch(1004)));
        epochs.note(Epoch(2000), Lsn(260));
        assert_eq!(epochs.end_of(Epoch(1004)), Some(Lsn(260)));
        (1..2 * MOST as u64).for_each(|more| epochs.note(Epoch(2000 + more), Lsn(1000 + more)));
        assert_eq!(epochs.0.len(), MOST);
    }
}
