//! Operators: what `pg_operator` says of one, and its place in the order of a type.

use super::FunctionId;
use firn_base::TypeId;
use firn_base::sync::Arc;

/// The oid of a row in `pg_operator`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OperatorId(pub u32);

/// What an operator means in the order of its types.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Strategy {
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `=`
    Equal,
    /// `>=`
    GreaterEqual,
    /// `>`
    Greater,
}

impl Strategy {
    /// The strategy of a number of `pg_amop`, from 1.
    pub fn of_btree(number: u16) -> Option<Strategy> {
        use Strategy::*;
        [Less, LessEqual, Equal, GreaterEqual, Greater].get(usize::from(number).checked_sub(1)?).copied()
    }

    /// What it is with the sides exchanged.
    pub fn commuted(self) -> Strategy {
        match self {
            Strategy::Less => Strategy::Greater,
            Strategy::LessEqual => Strategy::GreaterEqual,
            Strategy::Equal => Strategy::Equal,
            Strategy::GreaterEqual => Strategy::LessEqual,
            Strategy::Greater => Strategy::Less,
        }
    }
}

/// An operator.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Its oid.
    pub id: OperatorId,
    /// Its characters.
    pub name: Arc<str>,
    /// The type of its left side; `None` of a prefix operator.
    pub left: Option<TypeId>,
    /// The type of its right side.
    pub right: TypeId,
    /// The type of its result.
    pub result: TypeId,
    /// What it calls.
    pub function: FunctionId,
    /// The operator that means the same with the sides exchanged.
    pub commutator: Option<OperatorId>,
    /// The operator that means the opposite.
    pub negator: Option<OperatorId>,
    /// Whether rows that it joins can be found by merging.
    pub can_merge: bool,
    /// Whether rows that it joins can be found by hashing.
    pub can_hash: bool,
    /// What it means in the default order of its types.
    pub strategy: Option<Strategy>,
}
