//! The search for the cheapest tree.
//!
//! Up to a budget of pairs, dynamic programming over all pairs of connected sub-graphs finds it
//! (DPhyp: Moerkotte and Neumann, "Dynamic Programming Strikes Back", SIGMOD 2008). Beyond, the
//! relations are put in a line, each next to those before it with which it gives the fewest rows, and
//! only intervals of the line are joined (linearised dynamic programming: Neumann and Radke,
//! "Adaptive Optimization of Very Large Join Queries", SIGMOD 2018). The order of the statement is
//! kept if nothing cheaper is found.
//!
//! The cost of a tree is the rows that its joins yield and build tables of. A join builds of its
//! right input.

use super::graph::{Graph, Set, Tree};
use crate::operator::JoinKind;
use std::collections::HashMap;

#[derive(Clone)]
struct Plan {
    cost: f64,
    rows: f64,
    tree: Tree,
}

/// The cheapest tree found, if it is cheaper than the original one.
pub fn cheapest(graph: &Graph, original: &Tree, budget: usize) -> Option<Tree> {
    let all = original.set();
    let mut search = Search { graph, best: HashMap::new(), pairs: 0, budget };
    search.start();
    if !search.exact() {
        search.best.clear();
        search.start();
        search.linear();
    }
    let found = search.best.remove(&all)?;
    let before = cost(graph, original)?;
    (found.cost < before.cost).then_some(found.tree)
}

/// The cost of the order of the statement.
fn cost(graph: &Graph, tree: &Tree) -> Option<Plan> {
    match tree {
        Tree::Relation(relation) => Some(single(graph, *relation)),
        Tree::Join { left, right, .. } => {
            let (left_set, right_set) = (left.set(), right.set());
            let (left, right) = (cost(graph, left)?, cost(graph, right)?);
            combine(graph, left_set, &left, right_set, &right, false)
        }
    }
}

fn single(graph: &Graph, relation: usize) -> Plan {
    Plan { cost: 0.0, rows: graph.rows[relation], tree: Tree::Relation(relation) }
}

/// The join of two trees; if it is free to, with the smaller input on the right where the kind lets it be.
fn combine(
    graph: &Graph,
    left_set: Set,
    left: &Plan,
    right_set: Set,
    right: &Plan,
    free: bool,
) -> Option<Plan> {
    let pair = graph.join(left_set, right_set)?;
    let rows = graph.joined(&pair, left.rows, right.rows);
    let swap = pair.swap || free && pair.kind == JoinKind::Inner && left.rows < right.rows;
    let (first, second) = if swap { (right, left) } else { (left, right) };
    let cost = left.cost + right.cost + rows + second.rows;
    let tree = Tree::Join {
        kind: pair.kind,
        operators: pair.operators,
        left: Box::new(first.tree.clone()),
        right: Box::new(second.tree.clone()),
    };
    Some(Plan { cost, rows, tree })
}

struct Search<'a> {
    graph: &'a Graph,
    best: HashMap<Set, Plan>,
    pairs: usize,
    budget: usize,
}

/// The relations up to and with one.
fn up_to(relation: u32) -> Set {
    Set::MAX >> (63 - relation)
}

/// The parts of a set, without the empty one, from small numbers to large ones.
fn parts(set: Set) -> impl Iterator<Item = Set> {
    let mut part: Set = 0;
    std::iter::from_fn(move || {
        part = part.wrapping_sub(set) & set;
        (part != 0).then_some(part)
    })
}

impl Search<'_> {
    fn start(&mut self) {
        for relation in 0..self.graph.relations.len() {
            self.best.insert(1 << relation, single(self.graph, relation));
        }
    }

    /// Tries a pair; whether the budget allows more.
    fn pair(&mut self, left: Set, right: Set) -> bool {
        self.pairs += 1;
        if let (Some(left_plan), Some(right_plan)) = (self.best.get(&left), self.best.get(&right))
            && let Some(plan) = combine(self.graph, left, left_plan, right, right_plan, true)
        {
            let is_cheaper = self.best.get(&(left | right)).is_none_or(|best| plan.cost < best.cost);
            if is_cheaper {
                self.best.insert(left | right, plan);
            }
        }
        self.pairs <= self.budget
    }

    /// All pairs of connected sub-graphs; `false` if there are too many.
    fn exact(&mut self) -> bool {
        for relation in (0..self.graph.relations.len() as u32).rev() {
            let set = 1 << relation;
            if !self.emit(set) || !self.grow(set, up_to(relation)) {
                return false;
            }
        }
        true
    }

    /// Relations by which a set can grow: one for each edge that leads out of it and not into `without`.
    fn neighbours(&self, set: Set, without: Set) -> Set {
        let mut found = 0;
        for edge in &self.graph.operators {
            for (from, to) in [(edge.left, edge.right), (edge.right, edge.left)] {
                if from & !set == 0 && to & (set | without) == 0 {
                    found |= to & to.wrapping_neg();
                }
            }
        }
        found
    }

    fn is_connected(&self, left: Set, right: Set) -> bool {
        self.graph.operators.iter().any(|edge| {
            edge.left & !left == 0 && edge.right & !right == 0
                || edge.left & !right == 0 && edge.right & !left == 0
        })
    }

    /// Larger connected sets.
    fn grow(&mut self, set: Set, without: Set) -> bool {
        let around = self.neighbours(set, without);
        for part in parts(around) {
            if self.best.contains_key(&(set | part)) && !self.emit(set | part) {
                return false;
            }
            // Sets that are no plans are steps as well: a star has as many as subsets.
            self.pairs += 1;
            if self.pairs > self.budget {
                return false;
            }
        }
        parts(around).all(|part| self.grow(set | part, without | around))
    }

    /// All partners of a connected set.
    fn emit(&mut self, set: Set) -> bool {
        let without = set | up_to(set.trailing_zeros());
        let around = self.neighbours(set, without);
        for relation in (0..64).rev().filter(|relation| around & 1 << relation != 0) {
            let partner = 1 << relation;
            if self.is_connected(set, partner) && !self.pair(set, partner) {
                return false;
            }
            if !self.grow_partner(set, partner, without | up_to(relation) & around) {
                return false;
            }
        }
        true
    }

    /// Larger partners.
    fn grow_partner(&mut self, set: Set, partner: Set, without: Set) -> bool {
        let around = self.neighbours(partner, without | set);
        for part in parts(around) {
            let larger = partner | part;
            self.pairs += 1;
            if self.pairs > self.budget {
                return false;
            }
            if self.best.contains_key(&larger) && self.is_connected(set, larger) && !self.pair(set, larger) {
                return false;
            }
        }
        parts(around).all(|part| self.grow_partner(set, partner | part, without | around))
    }

    /// The intervals of a line of relations.
    fn linear(&mut self) {
        let line = self.line();
        let count = line.len();
        let set = |from: usize, to: usize| line[from..=to].iter().fold(0, |set, one| set | 1 << one);
        self.budget = usize::MAX;
        for length in 2..=count {
            for from in 0..=count - length {
                let to = from + length - 1;
                for middle in from..to {
                    self.pair(set(from, middle), set(middle + 1, to));
                }
            }
        }
    }

    /// A line of all relations: the smallest first, then each time the one that gives the fewest rows.
    fn line(&self) -> Vec<usize> {
        let rows = &self.graph.rows;
        let smaller = |left: &usize, right: &usize| rows[*left].total_cmp(&rows[*right]);
        let mut left: Vec<usize> = (0..rows.len()).collect();
        let mut line = Vec::new();
        let (mut set, mut given): (Set, f64) = (0, 1.0);
        while !left.is_empty() {
            let joined = |relation: &usize| {
                let share = self.graph.operators.iter().filter(|edge| {
                    let both = set | 1 << relation;
                    (edge.left | edge.right) & !both == 0 && (edge.left | edge.right) & 1 << relation != 0
                });
                let mut is_connected = set == 0;
                let share: f64 = share
                    .map(|edge| {
                        is_connected = true;
                        edge.share
                    })
                    .product();
                // What is not connected comes last.
                (!is_connected, given * rows[*relation] * share)
            };
            let next = left
                .iter()
                .copied()
                .min_by(|one, other| {
                    let (one_joined, other_joined) = (joined(one), joined(other));
                    one_joined
                        .0
                        .cmp(&other_joined.0)
                        .then(one_joined.1.total_cmp(&other_joined.1))
                        .then(smaller(one, other))
                })
                .expect("there are some left");
            given = joined(&next).1.max(1.0);
            set |= 1 << next;
            line.push(next);
            left.retain(|relation| *relation != next);
        }
        line
    }
}
