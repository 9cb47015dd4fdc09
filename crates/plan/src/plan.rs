//! A plan: operators in one vector, linked by numbers.
//!
//! Rewrites move sub-plans by moving numbers, and dropping a plan does not recurse. An operator that
//! nothing refers to any more stays in the vector until the plan is dropped; from the root each is
//! reached exactly once ([`verify`](mod@crate::verify)).

use crate::column::{Column, Columns};
use crate::operator::{Operator, SharedId, SourceId};
use crate::scalar::{Call, Scalar};
use firn_base::Value;

/// The number of an operator within its plan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u32);

/// A statement as operators over columns.
#[derive(Clone, Debug)]
pub struct Plan {
    nodes: Vec<Operator>,
    /// The columns of the statement.
    pub columns: Columns,
    /// The operator that gives the result.
    pub root: NodeId,
    /// The columns of the result, in their order; one may come twice.
    pub output: Vec<Column>,
    /// Whether the statement is a change itself: the last of its changes, whose rows the command tag counts.
    pub is_change: bool,
}

impl Plan {
    /// A plan of one row without columns.
    pub fn new() -> Plan {
        let row = Operator::Values { columns: Vec::new(), rows: vec![Vec::new()] };
        Plan {
            nodes: vec![row],
            columns: Columns::default(),
            root: NodeId(0),
            output: Vec::new(),
            is_change: false,
        }
    }

    /// Adds an operator, whose inputs are there already.
    pub fn add(&mut self, operator: Operator) -> NodeId {
        self.nodes.push(operator);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Takes an operator out of its place, to change it and put it back or to use it elsewhere.
    pub fn take(&mut self, node: NodeId) -> Operator {
        let none = Operator::Values { columns: Vec::new(), rows: Vec::new() };
        std::mem::replace(&mut self[node], none)
    }

    /// How many operators there are, unreachable ones included: a bound for tables by [`NodeId::index`].
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// A number for a shared sub-plan that no operator uses.
    pub fn unused_shared_id(&self) -> SharedId {
        let used = self.nodes.iter().filter_map(|operator| match operator {
            Operator::Shared { id, .. } | Operator::SharedRead { id, .. } => Some(id.0 + 1),
            _ => None,
        });
        SharedId(used.max().unwrap_or(0))
    }

    /// The operators that the root reaches, each after its inputs. It does not recurse.
    pub fn post_order(&self) -> Vec<NodeId> {
        self.post_order_of(self.root)
    }

    /// The operators that `root` reaches, each after its inputs.
    pub fn post_order_of(&self, root: NodeId) -> Vec<NodeId> {
        let (mut order, mut stack) = (Vec::new(), vec![root]);
        while let Some(node) = stack.pop() {
            order.push(node);
            stack.extend(self[node].inputs());
        }
        order.reverse();
        order
    }

    /// The sources that it reads or whose rows it locks, some of them perhaps more than once.
    pub fn sources(&self) -> Vec<SourceId> {
        let mut sources = Vec::new();
        for node in self.post_order() {
            match &self[node] {
                Operator::Scan(scan) => sources.push(scan.source),
                Operator::Lock { targets, .. } => sources.extend(targets.iter().map(|target| target.source)),
                _ => {}
            }
        }
        sources
    }

    /// Whether it changes a table outside of the definitions of shared sub-plans.
    pub fn changes_outside_definitions(&self) -> bool {
        let mut stack = vec![self.root];
        while let Some(node) = stack.pop() {
            match &self[node] {
                Operator::Insert(_) | Operator::Update(_) | Operator::Delete { .. } | Operator::Merge(_) => {
                    return true;
                }
                Operator::Shared { body, .. } => stack.push(*body),
                operator => stack.extend(operator.inputs()),
            }
        }
        false
    }

    /// About how many bytes it takes.
    pub fn memory(&self) -> usize {
        let mut bytes = self.nodes.len() * size_of::<Operator>();
        for operator in &self.nodes {
            operator.for_each_scalar(|scalar| {
                scalar.any(&mut |scalar| {
                    bytes += size_of::<Call>() + size_of::<Scalar>();
                    bytes += match scalar {
                        Scalar::Constant(_, Value::Text(text)) => text.len(),
                        Scalar::Constant(_, Value::Bytea(value)) => value.len(),
                        Scalar::Constant(_, Value::Array(array)) => size_of_val(array.elements()),
                        _ => 0,
                    };
                    false
                });
            });
        }
        bytes
    }

    /// The levels of operators below the root, itself included.
    pub fn depth(&self) -> usize {
        let mut depth = vec![0; self.size()];
        for node in self.post_order() {
            let below = self[node].inputs().into_iter().map(|input| depth[input.index()]).max();
            depth[node.index()] = 1 + below.unwrap_or(0);
        }
        depth[self.root.index()]
    }
}

impl Default for Plan {
    fn default() -> Plan {
        Plan::new()
    }
}

impl NodeId {
    /// The number, as an index of tables with an entry for each operator.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::ops::Index<NodeId> for Plan {
    type Output = Operator;

    fn index(&self, node: NodeId) -> &Operator {
        &self.nodes[node.index()]
    }
}

impl std::ops::IndexMut<NodeId> for Plan {
    fn index_mut(&mut self, node: NodeId) -> &mut Operator {
        &mut self.nodes[node.index()]
    }
}
