//! Domains: the values for which a right input is evaluated, and where they are read.
//!
//! Until the right input is rewritten it is not known whether a domain is read. Reads are empty
//! operators until then; [`Unnester::finish_domain`] fills them in and shares the left input, which
//! is read by the join and by the domain.

use super::{Representatives, Unnester};
use crate::column::Column;
use crate::operator::{Group, Join, JoinKind, JoinMethod, Operator};
use crate::plan::NodeId;
use crate::properties::{Scope, equality_is_identity, same_form, scope};
use crate::scalar::Scalar;

/// The number of a domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DomainId(pub usize);

/// The values of some columns.
pub struct Domain {
    /// The columns as the plan before knows them.
    pub columns: Vec<Column>,
    /// Those that tell its rows from each other: a row number, or all.
    pub keys: Vec<Column>,
    /// Whether a row number is among the keys, so that rows are distinct without grouping.
    numbered: bool,
    /// Whether nothing may be evaluated for other values.
    exact: bool,
    source: Source,
}

enum Source {
    /// The left input of a join: its columns with the values, and the reads.
    Left { values: Vec<(Column, bool)>, reads: Vec<(NodeId, Vec<Column>)> },
    /// Another domain with more columns.
    Part(DomainId),
}

impl Unnester<'_> {
    /// A domain of columns of a rewritten left input: how the plan before knows them, and what they are now.
    pub fn domain(
        &mut self,
        columns: Vec<Column>,
        values: Vec<(Column, bool)>,
        number: Option<Column>,
        exact: bool,
    ) -> DomainId {
        let keys = number.map_or_else(|| columns.clone(), |number| vec![number]);
        let source = Source::Left { values, reads: Vec::new() };
        self.domains.push(Domain { columns, keys, numbered: number.is_some(), exact, source });
        DomainId(self.domains.len() - 1)
    }

    /// The domain with only those columns that a sub-plan uses.
    pub fn part_of_domain(&mut self, domain: DomainId, node: NodeId) -> DomainId {
        let whole = &self.domains[domain.0];
        let outer = &self.outer[node.index()];
        let columns: Vec<Column> =
            whole.columns.iter().copied().filter(|column| outer.contains(column)).collect();
        if columns == whole.columns {
            return domain;
        }
        let (keys, exact) = (columns.clone(), whole.exact);
        self.domains.push(Domain { columns, keys, numbered: false, exact, source: Source::Part(domain) });
        DomainId(self.domains.len() - 1)
    }

    /// Reads a domain under new columns.
    pub fn read_domain(&mut self, domain: DomainId) -> (NodeId, Representatives) {
        let columns = self.domains[domain.0].columns.clone();
        match &self.domains[domain.0].source {
            Source::Part(whole) => {
                let (input, mut representatives) = self.read_domain(*whole);
                representatives.retain(|(of, _)| columns.contains(of));
                let keys = representatives.iter().map(|(_, by)| *by).collect();
                let group = Group { input, keys, determined: Vec::new(), sets: None, aggregates: Vec::new() };
                (self.plan.add(Operator::Group(group)), representatives)
            }
            Source::Left { values, .. } => {
                let values = values.clone();
                let mut own = Vec::new();
                for (of, (_, nullable)) in columns.iter().zip(values) {
                    let column = self.plan.columns.copy_of(*of);
                    self.plan.columns[column].nullable = nullable;
                    own.push(column);
                }
                let node = self.plan.add(Operator::Values { columns: own.clone(), rows: Vec::new() });
                let representatives = columns.into_iter().zip(own.iter().copied()).collect();
                let Source::Left { reads, .. } = &mut self.domains[domain.0].source else { unreachable!() };
                reads.push((node, own));
                (node, representatives)
            }
        }
    }

    /// Joins a domain to a rewritten operator that does not depend on it.
    pub fn cross_domain(&mut self, node: NodeId, domain: DomainId) -> (NodeId, Representatives) {
        let (left, representatives) = self.read_domain(domain);
        let join = Join {
            kind: JoinKind::Inner,
            dependent: false,
            left,
            right: node,
            conditions: Vec::new(),
            mark: None,
            method: JoinMethod::default(),
        };
        (self.plan.add(Operator::Join(join)), representatives)
    }

    /// Joins a domain to a rewritten operator that has representatives for a part of its columns.
    pub fn widen(
        &mut self,
        node: NodeId,
        has: Representatives,
        domain: DomainId,
    ) -> (NodeId, Representatives) {
        if self.domains[domain.0].columns.iter().all(|column| has.iter().any(|(of, _)| of == column)) {
            let representatives = self.representatives(domain, &has);
            return (node, representatives);
        }
        let (left, representatives) = self.read_domain(domain);
        let conditions = matching(&representatives, &has);
        let join = Join {
            kind: JoinKind::Inner,
            dependent: false,
            left,
            right: node,
            conditions,
            mark: None,
            method: JoinMethod::default(),
        };
        (self.plan.add(Operator::Join(join)), representatives)
    }

    /// Representatives of all columns of a domain, in its order.
    pub fn representatives(&self, domain: DomainId, has: &Representatives) -> Representatives {
        let by = |column: &Column| has.iter().find(|(of, _)| of == column).expect("it has all").1;
        let columns = &self.domains[domain.0].columns;
        columns.iter().map(|column| (*column, self.current(by(column)))).collect()
    }

    /// Conditions that two rewritten operators are for one value of the domain.
    pub fn same_value(
        &self,
        domain: DomainId,
        left: &Representatives,
        right: &Representatives,
    ) -> Vec<Scalar> {
        let keys = &self.domains[domain.0].keys;
        let left: Representatives = left.iter().copied().filter(|(of, _)| keys.contains(of)).collect();
        matching(&left, right)
    }

    /// Whether columns of an operator that does not depend on a domain can represent it.
    pub fn represent(&self, domain: DomainId, equal: &Representatives, node: NodeId) -> bool {
        let domain = &self.domains[domain.0];
        let has =
            |column: &Column| equal.iter().any(|(of, by)| of == column && self.producers.is_below(*by, node));
        !domain.exact && domain.columns.iter().all(has)
    }

    /// The columns that conditions equate with columns of a domain, one for each.
    pub fn equated(&self, conditions: &[Scalar], domain: Option<DomainId>) -> Representatives {
        let mut equated = Representatives::new();
        let Some(domain) = domain else { return equated };
        let columns = &self.domains[domain.0].columns;
        for condition in conditions {
            let Scalar::Call(call) = condition else { continue };
            if !call.function.is_equality() || call.arguments.len() != 2 {
                continue;
            }
            let sides = (call.arguments[0].as_column(), call.arguments[1].as_column());
            let (Some(left), Some(right)) = sides else { continue };
            for (of, by) in [(left, right), (right, left)] {
                let known = &self.plan.columns;
                if columns.contains(&of)
                    && !columns.contains(&by)
                    && same_form(known[of].ty, known[by].ty)
                    && equality_is_identity(known, by)
                    && !equated.iter().any(|(other, _)| *other == of)
                {
                    equated.push((of, by));
                }
            }
        }
        equated
    }

    /// Fills in the reads of a domain. Gives the join around which what is shared is to be defined, with its left
    /// input replaced by a reader if the domain is read.
    pub fn finish_domain(&mut self, domain: DomainId, left: NodeId, given: &Scope) -> Option<Finished> {
        let numbered = self.domains[domain.0].numbered;
        let Source::Left { values, reads } = &mut self.domains[domain.0].source else { unreachable!() };
        let (values, reads) = (std::mem::take(values), std::mem::take(reads));
        if reads.is_empty() {
            return None;
        }
        let id = self.new_shared();
        let mut columns = Vec::new();
        let mut all: Vec<(Column, bool)> = given.iter().collect();
        all.sort_unstable();
        for (of, nullable) in all {
            let own = self.plan.columns.copy_of(of);
            self.plan.columns[own].nullable = nullable;
            self.renamed.insert(of, own);
            columns.push((own, of));
        }
        let reader = self.plan.add(Operator::SharedRead { id, columns });
        let mut definitions = vec![(id, left)];
        let of = |own: &[Column]| own.iter().copied().zip(values.iter().map(|(value, _)| *value)).collect();
        if numbered {
            for (node, own) in reads {
                self.plan[node] = Operator::SharedRead { id, columns: of(&own) };
            }
        } else if let [(node, own)] = &reads[..] {
            let input = self.plan.add(Operator::SharedRead { id, columns: of(own) });
            let group = Group {
                input,
                keys: own.clone(),
                determined: Vec::new(),
                sets: None,
                aggregates: Vec::new(),
            };
            self.plan[*node] = Operator::Group(group);
        } else {
            let keys: Vec<Column> =
                reads[0].1.iter().map(|column| self.plan.columns.copy_of(*column)).collect();
            let input = self.plan.add(Operator::SharedRead { id, columns: of(&keys) });
            let group = Group {
                input,
                keys: keys.clone(),
                determined: Vec::new(),
                sets: None,
                aggregates: Vec::new(),
            };
            let distinct = self.new_shared();
            definitions.push((distinct, self.plan.add(Operator::Group(group))));
            for (node, own) in reads {
                let columns = own.into_iter().zip(keys.iter().copied()).collect();
                self.plan[node] = Operator::SharedRead { id: distinct, columns };
            }
        }
        Some(Finished { reader, definitions })
    }

    /// What a rewritten sub-plan gives.
    pub fn scope(&self, node: NodeId) -> Scope {
        scope(self.plan, node)
    }
}

/// A left input that is shared.
pub struct Finished {
    /// Reads it for the join.
    pub reader: NodeId,
    /// What is to be defined around the join, outermost first.
    pub definitions: Vec<(crate::operator::SharedId, NodeId)>,
}

/// Conditions that representatives of the same columns are equal.
fn matching(left: &Representatives, right: &Representatives) -> Vec<Scalar> {
    let mut conditions = Vec::new();
    for (of, by) in left {
        if let Some((_, other)) = right.iter().find(|(column, _)| column == of) {
            conditions.push(Scalar::same(*by, *other));
        }
    }
    conditions
}
