//! Ternary logic partitioning: a query without a condition has the rows of the queries in which a condition is TRUE, FALSE and NULL,
//! together (Rigger and Su, "Finding Bugs in Database Systems via Query Partitioning", OOPSLA 2020).

use super::expression::paren;
use super::{Generator, Level, Wanted};
use crate::coverage::{OperatorKind, Place};
use crate::schema::Ty;

/// Statements whose rows are those of another statement.
pub struct Partition {
    /// Their rows together are the statement's.
    pub parts: Vec<String>,
}

/// How the rows of the parts become the statement's.
#[derive(Clone, Copy)]
enum Union {
    /// They are all rows.
    Rows,
    /// Equal ones count once.
    Distinct,
    /// Each part is one row of aggregates, which are aggregated.
    Aggregates,
    /// Each part has groups, which are grouped.
    Groups,
    /// The condition is HAVING's.
    Having,
}

impl Generator<'_> {
    /// A query, and statements that have its rows together.
    pub(super) fn partition(&mut self) -> (String, Partition) {
        self.may_have_parameters = false;
        self.open_frame();
        let union = [Union::Rows, Union::Distinct, Union::Aggregates, Union::Groups, Union::Having]
            [self.choices.weighted(&[40, 15, 20, 15, 10])];
        let from = self.from(&Wanted::default());
        let level = from.level();
        let made = match union {
            Union::Rows | Union::Distinct => {
                let types = self.types(3);
                let targets: Vec<String> = self.inside(level.clone(), |generator| {
                    let target = |generator: &mut Self, ty: &Ty| {
                        generator.at(Place::Target, |generator| generator.expression(*ty, 1))
                    };
                    types.iter().map(|ty| target(generator, ty)).collect()
                });
                let targets = targets.join(", ");
                let parts = self
                    .conditions(&level)
                    .map(|condition| format!("SELECT {targets} FROM {} WHERE {condition}", from.text));
                match union {
                    Union::Rows => {
                        (format!("SELECT {targets} FROM {}", from.text), Partition { parts: parts.into() })
                    }
                    _ => {
                        self.covers_operator(OperatorKind::Distinct);
                        let parts = vec![parts.join(" UNION ")];
                        (format!("SELECT DISTINCT {targets} FROM {}", from.text), Partition { parts })
                    }
                }
            }
            Union::Aggregates => {
                self.covers_operator(OperatorKind::Aggregate);
                let (inner, outer) = self.inside(level.clone(), Self::divisible_aggregates);
                let parts = self
                    .conditions(&level)
                    .map(|condition| format!("SELECT {inner} FROM {} WHERE {condition}", from.text));
                let part = format!("SELECT {outer} FROM ({}) AS z", parts.join(" UNION ALL "));
                (format!("SELECT {inner} FROM {}", from.text), Partition { parts: vec![part] })
            }
            Union::Groups => {
                self.covers_operator(OperatorKind::Group);
                let (key, inner, outer) = self.inside(level.clone(), |generator| {
                    let key = generator.partition_key();
                    let (inner, outer) = generator.divisible_aggregates();
                    (key, inner, outer)
                });
                let parts = self.conditions(&level).map(|condition| {
                    format!("SELECT {key} AS k, {inner} FROM {} WHERE {condition} GROUP BY {key}", from.text)
                });
                let union = parts.join(" UNION ALL ");
                let part = format!("SELECT z.k, {outer} FROM ({union}) AS z GROUP BY z.k");
                let whole = format!("SELECT {key} AS k, {inner} FROM {} GROUP BY {key}", from.text);
                (whole, Partition { parts: vec![part] })
            }
            Union::Having => {
                self.covers_operator(OperatorKind::Group);
                let (key, inner, condition) = self.inside(level.clone(), |generator| {
                    let key = generator.partition_key();
                    let inner = generator.divisible_aggregates().0;
                    // Of aggregates alone.
                    let grouped = Level {
                        aliases: level.aliases.clone(),
                        grouped: Some(level.atoms.clone()),
                        ..Level::default()
                    };
                    let condition = generator.inside_instead(grouped, |generator| {
                        generator.at(Place::Having, |generator| {
                            let ty = [Ty::Big, Ty::Int, Ty::Text, Ty::Num][generator.choices.below(4)];
                            let left = generator.aggregate(ty, 1);
                            let operator = generator.choices.pick(&["<", "=", "<>", ">="]);
                            format!("{left} {operator} {}", generator.expression(ty, 1))
                        })
                    });
                    (key, inner, condition)
                });
                let whole = format!("SELECT {key} AS k, {inner} FROM {} GROUP BY {key}", from.text);
                let parts = ternary(&condition).map(|condition| format!("{whole} HAVING {condition}"));
                (whole, Partition { parts: parts.into() })
            }
        };
        self.close_frame(false);
        made
    }

    /// A condition, its negation, and the test whether it is NULL.
    fn conditions(&mut self, level: &Level) -> [String; 3] {
        // The statement itself does not have it.
        let (cells, frames) = (self.cells.clone(), self.frames.len());
        let condition = self.inside(level.clone(), |generator| {
            generator.open_frame();
            let condition = generator.at(Place::Where, |generator| generator.condition(2));
            generator.close_frame(false);
            condition
        });
        assert_eq!(frames, self.frames.len());
        self.cells = cells;
        ternary(&condition)
    }

    /// Aggregates over rows, and over those of parts.
    fn divisible_aggregates(&mut self) -> (String, String) {
        let (mut inner, mut outer) = (Vec::new(), Vec::new());
        for place in 0..1 + self.choices.below(3) {
            let name = format!("c{place}");
            let ty = [Ty::Int, Ty::Text, Ty::Num, Ty::Date, Ty::Big][self.choices.below(5)];
            let argument = self.at(Place::Aggregate, |generator| generator.argument(ty, 1));
            let (call, again) = match self.choices.below(5) {
                0 => ("count(*)".to_owned(), "sum"),
                1 => (format!("count({argument})"), "sum"),
                2 if matches!(ty, Ty::Int | Ty::Num | Ty::Big) => (format!("sum({argument})"), "sum"),
                3 => (format!("min({argument})"), "min"),
                _ => (format!("max({argument})"), "max"),
            };
            inner.push(format!("{call} AS {name}"));
            outer.push(format!("{again}(z.{name})"));
        }
        (inner.join(", "), outer.join(", "))
    }

    fn partition_key(&mut self) -> String {
        let ty = [Ty::Int, Ty::Text, Ty::Big, Ty::Date, Ty::Num][self.choices.below(5)];
        let column = self.own_column(ty).or_else(|| Ty::ALL.into_iter().find_map(|ty| self.own_column(ty)));
        // A number alone would be the place of a column.
        column.unwrap_or_else(|| format!("coalesce({})", self.literal(ty)))
    }
}

fn ternary(condition: &str) -> [String; 3] {
    let condition = paren(condition.to_owned());
    [condition.clone(), format!("NOT {condition}"), format!("{condition} IS NULL")]
}
