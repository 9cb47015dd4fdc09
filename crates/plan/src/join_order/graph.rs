//! The graph of a region: relations, and operators between sets of them.
//!
//! Inner joins commute and associate; others do so with some and not with others. Where two may not
//! change places, the one above needs the relations below the other one on its side: its *total
//! eligibility set* says which (Moerkotte, Fender, Eich: "On the Correct and Complete Enumeration of
//! the Core Search Space", SIGMOD 2013, whose approach CD-A this is). An operator is then a hyper-edge
//! between the parts of its set on its two sides.

use crate::operator::JoinKind;
use crate::plan::NodeId;
use crate::properties::{Producers, rejects_null};
use crate::scalar::Scalar;
use crate::statistics::{Estimates, joined};

/// A set of relations, one bit each.
pub type Set = u64;

/// Relations and operators.
#[derive(Default)]
pub struct Graph {
    /// The inputs of the region.
    pub relations: Vec<NodeId>,
    /// Estimated rows of each.
    pub rows: Vec<f64>,
    pub operators: Vec<Edge>,
    joins: Vec<Original>,
}

/// A join of the plan before.
struct Original {
    kind: JoinKind,
    conditions: Vec<Scalar>,
    left: Set,
    right: Set,
    /// The joins within each side.
    below_left: Vec<usize>,
    below_right: Vec<usize>,
}

/// An operator: a join that is not inner, or one condition of an inner join.
pub struct Edge {
    pub kind: JoinKind,
    conditions: Vec<Scalar>,
    /// The relations that it needs on its left and right side.
    pub left: Set,
    pub right: Set,
    /// The relations that its conditions use. Once all are there, it must be applied; an inner join without
    /// conditions need not.
    pub uses: Set,
    /// The share of pairs that its conditions keep.
    pub share: f64,
}

/// A tree of joins.
#[derive(Clone, Debug)]
pub enum Tree {
    Relation(usize),
    Join { kind: JoinKind, operators: Vec<usize>, left: Box<Tree>, right: Box<Tree> },
}

impl Tree {
    pub fn set(&self) -> Set {
        match self {
            Tree::Relation(relation) => 1 << relation,
            Tree::Join { left, right, .. } => left.set() | right.set(),
        }
    }

    fn joins(&self, list: &mut Vec<usize>) {
        if let Tree::Join { operators, left, right, .. } = self {
            left.joins(list);
            right.joins(list);
            list.extend(operators);
        }
    }
}

impl Graph {
    /// Adds a join of the plan before; the operators in the tree are numbers of joins until [`Graph::finish`].
    pub fn add(&mut self, kind: JoinKind, conditions: Vec<Scalar>, left: Tree, right: Tree) -> Tree {
        let (mut below_left, mut below_right) = (Vec::new(), Vec::new());
        left.joins(&mut below_left);
        right.joins(&mut below_right);
        self.joins.push(Original {
            kind,
            conditions,
            left: left.set(),
            right: right.set(),
            below_left,
            below_right,
        });
        let operators = vec![self.joins.len() - 1];
        Tree::Join { kind, operators, left: Box::new(left), right: Box::new(right) }
    }

    /// Finds what operators need, once all joins are added.
    pub fn finish(&mut self, producers: &Producers, estimates: &Estimates<'_>) {
        self.rows = self.relations.iter().map(|node| estimates.rows(*node).max(1.0)).collect();
        let used = |condition: &Scalar| -> Set {
            let mut set = 0;
            condition.for_each_column(&mut |column| {
                let owner = self.relations.iter().position(|node| producers.is_below(column, *node));
                set |= owner.map_or(0, |owner| 1 << owner);
            });
            set
        };
        let most = |set: Set| {
            let rows = self.rows.iter().enumerate();
            rows.filter(|(index, _)| set & 1 << index != 0).map(|(_, rows)| *rows).fold(1.0, f64::max)
        };
        let mut operators: Vec<Edge> = Vec::new();
        for join in &self.joins {
            let parts: Vec<Vec<Scalar>> = match join.kind {
                JoinKind::Inner if !join.conditions.is_empty() => {
                    join.conditions.iter().map(|condition| vec![condition.clone()]).collect()
                }
                _ => vec![join.conditions.clone()],
            };
            for conditions in parts {
                let uses = conditions.iter().map(used).fold(0, |all, set| all | set);
                let mut needs = uses;
                for below in &join.below_left {
                    let below = &self.joins[*below];
                    if !associates(below, join.kind, &conditions, producers, self) {
                        needs |= below.left;
                    }
                }
                for below in &join.below_right {
                    let below = &self.joins[*below];
                    // An inner join associates with what is on its right unless that is a full join.
                    if join.kind != JoinKind::Inner {
                        needs |= below.right;
                    }
                    if join.kind != JoinKind::Inner || below.kind != JoinKind::Inner {
                        needs |= below.left;
                    }
                }
                // Conditions on one side, or on none, speak of all its rows.
                let side = |side: Set| if needs & side == 0 { side } else { needs & side };
                let (left, right) = (side(join.left), side(join.right));
                let is_cross = join.kind == JoinKind::Inner && conditions.is_empty();
                let each: Vec<&Scalar> = conditions.iter().collect();
                let share = estimates.shares(&each, most(left | right)).iter().product();
                let is_one_sided = uses & join.left == 0 || uses & join.right == 0;
                let uses = match (is_cross, is_one_sided || join.kind != JoinKind::Inner) {
                    (true, _) => 0,
                    (false, true) => left | right,
                    (false, false) => uses,
                };
                operators.push(Edge { kind: join.kind, conditions, left, right, uses, share });
            }
        }
        // The conditions of inner joins are operators of their own, but not independent of each other.
        let inner: Vec<usize> = (0..operators.len())
            .filter(|index| {
                operators[*index].kind == JoinKind::Inner && operators[*index].conditions.len() == 1
            })
            .collect();
        let conditions: Vec<&Scalar> = inner.iter().map(|index| &operators[*index].conditions[0]).collect();
        let shares = estimates.shares(&conditions, most(Set::MAX));
        for (index, share) in inner.into_iter().zip(shares) {
            operators[index].share = share;
        }
        self.operators = operators;
    }

    pub fn conditions(&self, operator: usize) -> &[Scalar] {
        &self.operators[operator].conditions
    }

    /// How two sets of relations are joined: the kind, the operators, the share, and whether the sides change. `None`
    /// if they may not be.
    pub fn join(&self, left: Set, right: Set) -> Option<Pair> {
        let both = left | right;
        let is_within = |part: Set, set: Set| part & !set == 0;
        let (mut operators, mut other, mut is_connected, mut share) = (Vec::new(), None, false, 1.0);
        for (index, edge) in self.operators.iter().enumerate() {
            let forwards = is_within(edge.left, left) && is_within(edge.right, right);
            let backwards = is_within(edge.left, right) && is_within(edge.right, left);
            if edge.uses == 0 {
                is_connected |= forwards || backwards;
                continue;
            }
            if !is_within(edge.uses, both) || is_within(edge.uses, left) || is_within(edge.uses, right) {
                continue;
            }
            // Its columns are all there: it is applied here or never.
            if !is_within(edge.left | edge.right, both) {
                return None;
            }
            operators.push(index);
            share *= edge.share;
            is_connected |= forwards || backwards;
            if edge.kind != JoinKind::Inner {
                if !(forwards || backwards) {
                    return None;
                }
                other = Some((edge.kind, backwards));
            }
        }
        match other {
            Some(_) if operators.len() > 1 => None,
            Some((kind, swap)) => Some(Pair { kind, operators, share, swap }),
            None => is_connected.then_some(Pair { kind: JoinKind::Inner, operators, share, swap: false }),
        }
    }

    /// The rows of a join of so many.
    pub fn joined(&self, pair: &Pair, left: f64, right: f64) -> f64 {
        let (left, right) = if pair.swap { (right, left) } else { (left, right) };
        joined(pair.kind, left, right, pair.share).max(1.0)
    }
}

/// How two sets of relations are joined.
pub struct Pair {
    pub kind: JoinKind,
    pub operators: Vec<usize>,
    pub share: f64,
    pub swap: bool,
}

/// Whether `(a below b) join c` is `a below (b join c)`. That it is `(a join c) below b` is always so among these kinds.
fn associates(
    below: &Original,
    kind: JoinKind,
    conditions: &[Scalar],
    producers: &Producers,
    graph: &Graph,
) -> bool {
    match below.kind {
        JoinKind::Inner => true,
        JoinKind::Left => {
            let is_of_right = |column: &crate::column::Column| {
                let relations = graph.relations.iter().enumerate();
                let mut right = relations.filter(|(index, _)| below.right & 1 << index != 0);
                right.any(|(_, node)| producers.is_below(*column, *node))
            };
            let rejects =
                || conditions.iter().any(|condition| rejects_null(condition).iter().any(is_of_right));
            kind == JoinKind::Left && rejects()
        }
        _ => false,
    }
}
