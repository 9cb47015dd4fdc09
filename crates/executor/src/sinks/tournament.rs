//! Which of many sequences has the least next element: a tree of losers (Knuth, The Art of Computer Programming, volume 3, 5.4.1).
//!
//! Each inner node of the tree keeps the loser of the match that was played there. When the next element of the winner has
//! changed, only the matches on its way to the root are played again: the logarithm of the number of sequences.

/// The order of the players; a player is a number.
pub struct Tournament {
    /// The loser at each inner node. The node above node `n` is `n / 2`, and above player `p` it is `(p + players) / 2`.
    losers: Vec<usize>,
    winner: Option<usize>,
}

impl Tournament {
    /// Plays all matches of so many players. `precedes` says whether the first of two different players goes before the second; of
    /// any two, one does.
    pub fn new(players: usize, precedes: impl Fn(usize, usize) -> bool) -> Tournament {
        // The winner at each node, the players being the nodes from `players` on.
        let mut winners = vec![0; 2 * players];
        let mut losers = vec![0; players];
        for node in (1..2 * players).rev() {
            if let Some(player) = node.checked_sub(players) {
                winners[node] = player;
                continue;
            }
            let (left, right) = (winners[2 * node], winners[2 * node + 1]);
            (winners[node], losers[node]) = if precedes(left, right) { (left, right) } else { (right, left) };
        }
        Tournament { losers, winner: winners.get(1).copied() }
    }

    /// The player that goes before all others, if there is one.
    pub fn winner(&self) -> Option<usize> {
        self.winner
    }

    /// Plays again after the winner has changed.
    pub fn replay(&mut self, precedes: impl Fn(usize, usize) -> bool) {
        let Some(winner) = &mut self.winner else { return };
        let mut node = (*winner + self.losers.len()) / 2;
        while node > 0 {
            let loser = &mut self.losers[node];
            if precedes(*loser, *winner) {
                std::mem::swap(loser, winner);
            }
            node /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tournament;
    use firn_base::random::Random;

    /// Merges lists; the first of equal elements is that of the first list.
    fn merged(lists: &[Vec<i64>]) -> Vec<(i64, usize)> {
        let mut places = vec![0; lists.len()];
        let mut merged = Vec::new();
        // Lists at their end come last.
        let key = |places: &[usize], list: usize| {
            let next = lists[list].get(places[list]);
            (next.is_none(), next.copied(), list)
        };
        let mut tournament =
            Tournament::new(lists.len(), |left, right| key(&places, left) < key(&places, right));
        while let Some(list) = tournament.winner() {
            let Some(next) = lists[list].get(places[list]) else { break };
            merged.push((*next, list));
            places[list] += 1;
            tournament.replay(|left, right| key(&places, left) < key(&places, right));
        }
        merged
    }

    #[test]
    fn lists_of_any_number_and_length_are_merged() {
        let mut random = Random::seeded(1);
        for count in 0..40 {
            let mut list = |_| {
                let mut list: Vec<i64> = (0..random.uniform(0, 9)).map(|_| random.uniform(0, 20)).collect();
                list.sort_unstable();
                list
            };
            let lists: Vec<Vec<i64>> = (0..count).map(&mut list).collect();
            let pairs = |(number, list): (usize, &Vec<i64>)| -> Vec<(i64, usize)> {
                list.iter().map(|element| (*element, number)).collect()
            };
            let mut expected: Vec<(i64, usize)> = lists.iter().enumerate().flat_map(pairs).collect();
            expected.sort_unstable();
            assert_eq!(merged(&lists), expected, "{lists:?}");
        }
    }
}
