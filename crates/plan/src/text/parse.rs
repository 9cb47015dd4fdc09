//! The parser of plan text. It is for tests and tools: errors are messages for their authors.
//!
//! Inputs are parsed before the operator that uses them, since functions are found by the types of
//! their arguments and columns get their types where they are produced.

use super::constant::{read_type, read_value};
use super::lex::{Token, tokens};
use crate::column::{Column, ColumnInfo, Columns, Origin};
use crate::function::{Function, Functions, is_polymorphic};
use crate::operator::*;
use crate::plan::{NodeId, Plan};
use crate::scalar::{Call, Case, Cast, Quantified, Scalar, Values};
use firn_base::{Collation, Type, TypeId, Value};

/// The plan that a text stands for, which [`print`](super::print) would print.
pub fn parse(text: &str, functions: &dyn Functions) -> Result<Plan, String> {
    let mut lines = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let words = line.trim_start();
        let blanks = line.len() - words.len();
        lines.push((blanks / 2, tokens(words).map_err(|problem| format!("{problem}: {line}"))?, line));
    }
    // Texts may be indented as a whole.
    let least = lines.iter().map(|(level, ..)| *level).min().unwrap_or(0);
    lines.iter_mut().for_each(|(level, ..)| *level -= least);
    let mut parser = Parser { functions, columns: Vec::new(), plan: Plan::new(), tokens: Vec::new(), at: 0 };
    let mut next = 1;
    let Some((0, output, line)) = lines.first() else { return Err("no output".to_owned()) };
    let roots = parser.inputs(&lines, &mut next, 1)?;
    let [root] = roots[..] else { return Err("not one root".to_owned()) };
    if next != lines.len() {
        return Err(format!("not an operator of the tree: {}", lines[next].2));
    }
    parser.tokens.clone_from(output);
    parser.at = 0;
    let output = parser.output().map_err(|problem| format!("{problem}: {line}"))?;
    let mut plan = parser.plan;
    let mut columns = Columns::default();
    for info in parser.columns {
        columns.add(info.unwrap_or_else(|| ColumnInfo::new(Type::new(TypeId::BOOL), true)));
    }
    (plan.root, plan.output, plan.columns) = (root, output, columns);
    // A statement with changes in WITH alone is a query.
    plan.is_change = plan.changes_outside_definitions();
    Ok(plan)
}

/// Above this a number is a mistake.
const MOST_COLUMNS: u32 = 1 << 20;

struct Parser<'a> {
    functions: &'a dyn Functions,
    columns: Vec<Option<ColumnInfo>>,
    plan: Plan,
    tokens: Vec<Token>,
    at: usize,
}

type Parsed<T> = Result<T, String>;
type Line<'a> = (usize, Vec<Token>, &'a str);

impl Parser<'_> {
    fn inputs(&mut self, lines: &[Line<'_>], next: &mut usize, level: usize) -> Parsed<Vec<NodeId>> {
        let mut nodes = Vec::new();
        while let Some((at, tokens, line)) = lines.get(*next)
            && *at == level
        {
            *next += 1;
            let inputs = self.inputs(lines, next, level + 1)?;
            self.tokens.clone_from(tokens);
            self.at = 0;
            let operator = self.operator(&inputs).map_err(|problem| format!("{problem}: {line}"))?;
            if self.at < self.tokens.len() {
                return Err(format!("{:?} is too much: {line}", self.tokens[self.at]));
            }
            nodes.push(self.plan.add(operator));
        }
        Ok(nodes)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Parsed<Token> {
        let token = self.peek().cloned().ok_or("the line is too short")?;
        self.at += 1;
        Ok(token)
    }

    fn accept(&mut self, mark: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Mark(found)) if *found == mark)
            || matches!(self.peek(), Some(Token::Symbol(found)) if found == mark);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: &str) -> Parsed<()> {
        if self.accept(mark) { Ok(()) } else { Err(format!("{mark} instead of {:?}", self.peek())) }
    }

    fn word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(found)) if found == word);
        self.at += usize::from(found);
        found
    }

    fn words(&mut self, words: &[&str]) -> bool {
        let begin = self.at;
        let found = words.iter().all(|word| self.word(word));
        if !found {
            self.at = begin;
        }
        found
    }

    fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.word(word) { Ok(()) } else { Err(format!("{word} instead of {:?}", self.peek())) }
    }

    /// A name, with quotes or without.
    fn name(&mut self) -> Parsed<String> {
        match self.next()? {
            Token::Word(name) | Token::Name(name) => Ok(name),
            other => Err(format!("a name instead of {other:?}")),
        }
    }

    fn number<T: TryFrom<i128>>(&mut self) -> Parsed<T> {
        match self.next()? {
            Token::Number(number) => T::try_from(number).map_err(|_| format!("{number} is too large")),
            other => Err(format!("a number instead of {other:?}")),
        }
    }

    fn items<T>(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        self.expect(open)?;
        let mut items = Vec::new();
        if self.accept(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.accept(close) {
                return Ok(items);
            }
            self.expect(",")?;
        }
    }

    fn list<T>(&mut self, item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.items("[", "]", item)
    }

    fn output(&mut self) -> Parsed<Vec<Column>> {
        self.expect_word("Output")?;
        self.list(Self::column)
    }

    /// The number and the name of a column.
    fn named_column(&mut self) -> Parsed<(Column, Option<String>)> {
        let Token::Column(number) = self.next()? else { return Err("a column is missing".to_owned()) };
        let name = match self.peek() {
            Some(Token::Word(word)) if !super::KEYWORDS.contains(&word.as_str()) => Some(word.clone()),
            Some(Token::Name(name)) => Some(name.clone()),
            _ => None,
        };
        self.at += usize::from(name.is_some());
        Ok((Column(number), name))
    }

    fn column(&mut self) -> Parsed<Column> {
        Ok(self.named_column()?.0)
    }

    fn columns(&mut self) -> Parsed<Vec<Column>> {
        self.list(Self::column)
    }

    fn definition(&mut self) -> Parsed<Column> {
        let (column, name) = self.named_column()?;
        self.expect(":")?;
        let ty = self.ty()?;
        let nullable = !self.words(&["not", "null"]);
        let origin = match self.word("from") {
            true => {
                let relation = self.number()?;
                self.expect(".")?;
                Some(Origin { relation, attribute: self.number()? })
            }
            false => None,
        };
        let info = ColumnInfo { ty, nullable, name: name.map(Into::into), origin };
        if column.0 >= MOST_COLUMNS {
            return Err(format!("{column:?} is too large"));
        }
        let index = column.0 as usize;
        if self.columns.len() <= index {
            self.columns.resize(index + 1, None);
        }
        match self.columns[index].replace(info) {
            Some(_) => Err(format!("{column:?} is produced twice")),
            None => Ok(column),
        }
    }

    fn definitions(&mut self) -> Parsed<Vec<Column>> {
        self.list(Self::definition)
    }

    fn ty(&mut self) -> Parsed<Type> {
        let name = match self.next()? {
            Token::Word(name) | Token::Name(name) => name,
            Token::Number(oid) => oid.to_string(),
            other => return Err(format!("a type instead of {other:?}")),
        };
        let modifiers = match self.peek() {
            Some(Token::Mark("(")) => self.items("(", ")", Self::number)?,
            _ => Vec::new(),
        };
        let is_array = self.accept("[");
        if is_array {
            self.expect("]")?;
        }
        let ty = read_type(&name, &modifiers, is_array).ok_or_else(|| format!("no type {name}"))?;
        Ok(match self.word("collate") {
            true => ty.with_collation(Collation(self.number()?)),
            false => ty,
        })
    }

    fn order(&mut self) -> Parsed<Vec<SortKey>> {
        self.list(|parser| {
            let column = parser.column()?;
            let descending = parser.word("desc");
            let nulls_first = match parser.word("nulls") {
                true => parser.word("first") || !parser.word("last"),
                false => descending,
            };
            Ok(SortKey { column, descending, nulls_first })
        })
    }

    fn scalars(&mut self) -> Parsed<Vec<Scalar>> {
        self.list(Self::scalar)
    }

    fn optional_scalars(&mut self, word: &str) -> Parsed<Vec<Scalar>> {
        if self.word(word) { self.scalars() } else { Ok(Vec::new()) }
    }

    fn optional_order(&mut self, word: &str) -> Parsed<Vec<SortKey>> {
        if self.word(word) { self.order() } else { Ok(Vec::new()) }
    }

    fn optional_columns(&mut self, word: &str) -> Parsed<Vec<Column>> {
        if self.word(word) { self.columns() } else { Ok(Vec::new()) }
    }

    fn optional_scalar(&mut self, word: &str) -> Parsed<Option<Scalar>> {
        if self.word(word) { self.scalar().map(Some) } else { Ok(None) }
    }

    fn operator(&mut self, inputs: &[NodeId]) -> Parsed<Operator> {
        let name = self.name()?;
        let input = || match inputs {
            [input] => Ok(*input),
            _ => Err("not one input".to_owned()),
        };
        let two = || match inputs {
            [left, right] => Ok((*left, *right)),
            _ => Err("not two inputs".to_owned()),
        };
        let attributes = |parser: &mut Self| {
            parser.list(|parser| {
                let column = parser.definition()?;
                parser.expect("=")?;
                Ok((column, parser.number()?))
            })
        };
        Ok(match name.as_str() {
            "Scan" => {
                let source = SourceId(self.number()?);
                let name = match self.peek() {
                    Some(Token::Word(_) | Token::Name(_)) => Some(self.name()?.into()),
                    _ => None,
                };
                let columns = attributes(self)?;
                Operator::Scan(Scan { source, name, columns, conditions: self.optional_scalars("where")? })
            }
            "Values" => {
                let columns = self.definitions()?;
                self.expect_word("rows")?;
                let rows = self.list(|parser| parser.items("(", ")", Self::scalar))?;
                Operator::Values { columns, rows }
            }
            "TableFunction" => Operator::TableFunction(self.set_calls()?),
            "FlatMap" => Operator::FlatMap { input: input()?, calls: self.set_calls()? },
            "Filter" => Operator::Filter { input: input()?, conditions: self.scalars()? },
            "Map" => {
                let outputs = self.list(|parser| {
                    let column = parser.definition()?;
                    parser.expect(":=")?;
                    Ok((column, parser.scalar()?))
                })?;
                Operator::Map { input: input()?, outputs }
            }
            "Join" => {
                let kind = match self.name()?.as_str() {
                    "inner" => JoinKind::Inner,
                    "left" => JoinKind::Left,
                    "full" => JoinKind::Full,
                    "semi" => JoinKind::Semi,
                    "anti" => JoinKind::Anti,
                    "mark" => JoinKind::Mark,
                    "single" => JoinKind::Single,
                    other => return Err(format!("no join {other}")),
                };
                let (left, right) = two()?;
                let dependent = self.word("dependent");
                let mark = match self.peek() {
                    Some(Token::Column(_)) => Some(self.definition()?),
                    _ => None,
                };
                let method = if self.word("by") {
                    let attributes = self.list(Self::number)?;
                    let first = match self.word("first") {
                        true => {
                            let count = self.scalar()?;
                            Some(FirstRows { order: self.optional_order("order")?, count })
                        }
                        false => None,
                    };
                    JoinMethod::Index(ByIndex { attributes, first })
                } else if self.word("build") {
                    self.expect_word("left")?;
                    JoinMethod::BuildLeft
                } else {
                    JoinMethod::BuildRight
                };
                let conditions = self.optional_scalars("on")?;
                Operator::Join(Join { kind, dependent, left, right, conditions, mark, method })
            }
            "Group" => self.group(input()?)?,
            "Window" => {
                let partition = self.optional_columns("partition")?;
                let order = self.optional_order("order")?;
                let first = self.optional_scalar("first")?;
                self.expect_word("calls")?;
                let calls = self.list(|parser| {
                    let output = parser.definition()?;
                    parser.expect(":=")?;
                    let (function, arguments) = parser.function()?;
                    let filter = parser.optional_scalar("filter")?;
                    Ok(WindowCall { output, function, arguments, filter, frame: parser.frame()? })
                })?;
                Operator::Window(Window { input: input()?, partition, order, first, calls })
            }
            "Sort" => Operator::Sort { input: input()?, keys: self.order()? },
            "Limit" => {
                let ends =
                    matches!(self.peek(), None | Some(Token::Word(_))) && !self.begins_with_word_scalar();
                let count = if ends { None } else { Some(self.scalar()?) };
                let offset = self.optional_scalar("offset")?;
                let ties = if self.word("ties") { Some(self.order()?) } else { None };
                Operator::Limit(Limit { input: input()?, count, offset, ties })
            }
            "DistinctOn" => {
                let keys = self.columns()?;
                Operator::DistinctOn { input: input()?, keys, order: self.optional_order("order")? }
            }
            "Sample" => {
                let by_block = match self.name()?.as_str() {
                    "system" => true,
                    "bernoulli" => false,
                    other => return Err(format!("no method {other}")),
                };
                let percent = self.scalar()?;
                let seed = self.optional_scalar("seed")?;
                Operator::Sample { input: input()?, by_block, percent, seed }
            }
            "UnionAll" => {
                let columns = self.definitions()?;
                self.expect_word("inputs")?;
                let lists = self.list(Self::columns)?;
                if lists.len() != inputs.len() {
                    return Err("the numbers of inputs differ".to_owned());
                }
                Operator::UnionAll { columns, inputs: inputs.iter().copied().zip(lists).collect() }
            }
            "Iterate" => {
                let (initial, step) = two()?;
                let id = IterateId(self.number()?);
                let distinct = self.word("distinct");
                if !distinct {
                    self.expect_word("all")?;
                }
                let columns = self.definitions()?;
                self.expect_word("initial")?;
                let initial_columns = self.columns()?;
                self.expect_word("step")?;
                let step_columns = self.columns()?;
                Operator::Iterate(Iterate {
                    id,
                    columns,
                    distinct,
                    initial,
                    initial_columns,
                    step,
                    step_columns,
                })
            }
            "IterateRead" => {
                let iterate = IterateId(self.number()?);
                Operator::IterateRead { iterate, columns: self.definitions()? }
            }
            "Shared" => {
                let (definition, body) = two()?;
                Operator::Shared { id: SharedId(self.number()?), definition, body }
            }
            "SharedRead" => {
                let id = SharedId(self.number()?);
                let columns = self.list(|parser| {
                    let own = parser.definition()?;
                    parser.expect(":=")?;
                    Ok((own, parser.column()?))
                })?;
                Operator::SharedRead { id, columns }
            }
            "Lock" => {
                let targets = self.list(|parser| {
                    let source = SourceId(parser.number()?);
                    let row = parser.column()?;
                    let strength = if parser.words(&["key", "share"]) {
                        LockStrength::KeyShare
                    } else if parser.word("share") {
                        LockStrength::Share
                    } else if parser.words(&["no", "key", "update"]) {
                        LockStrength::NoKeyUpdate
                    } else {
                        parser.expect_word("update")?;
                        LockStrength::Update
                    };
                    let wait = if parser.words(&["no", "wait"]) {
                        LockWait::Error
                    } else if parser.word("skip") {
                        LockWait::Skip
                    } else {
                        LockWait::Block
                    };
                    Ok(LockTarget { source, row, strength, wait })
                })?;
                Operator::Lock { input: input()?, targets }
            }
            "Insert" => {
                let target = SourceId(self.number()?);
                let values = self.assignments()?;
                let conflicts = match self.word("conflict") {
                    true => self.list(|parser| {
                        let indexes = parser.list(Self::number)?;
                        if parser.word("nothing") {
                            return Ok(ConflictArm { indexes, update: None });
                        }
                        parser.expect_word("update")?;
                        let (existing, excluded) = (attributes(parser)?, attributes(parser)?);
                        parser.expect_word("set")?;
                        let set = parser.assignments()?;
                        let conditions = parser.optional_scalars("where")?;
                        let update = Some(ConflictUpdate { existing, excluded, set, conditions });
                        Ok(ConflictArm { indexes, update })
                    })?,
                    false => Vec::new(),
                };
                Operator::Insert(Insert {
                    input: input()?,
                    target,
                    values,
                    conflicts,
                    images: self.images()?,
                })
            }
            "Update" => {
                let (target, row) = (SourceId(self.number()?), self.column()?);
                self.expect_word("set")?;
                let set = self.assignments()?;
                Operator::Update(Update { input: input()?, target, row, set, images: self.images()? })
            }
            "Delete" => {
                let (target, row) = (SourceId(self.number()?), self.column()?);
                Operator::Delete { input: input()?, target, row, images: self.images()? }
            }
            "Merge" => {
                let (target, row) = (SourceId(self.number()?), self.column()?);
                self.expect_word("when")?;
                let arms = self.list(|parser| {
                    let matched = !parser.word("not");
                    parser.expect_word("matched")?;
                    let conditions = parser.optional_scalars("and")?;
                    parser.expect_word("then")?;
                    let action = match parser.name()?.as_str() {
                        "update" => MergeAction::Update(parser.assignments()?),
                        "delete" => MergeAction::Delete,
                        "insert" => MergeAction::Insert(parser.assignments()?),
                        "nothing" => MergeAction::Nothing,
                        other => return Err(format!("no action {other}")),
                    };
                    Ok(MergeArm { matched, conditions, action })
                })?;
                Operator::Merge(Merge { input: input()?, target, row, arms, images: self.images()? })
            }
            other => return Err(format!("no operator {other}")),
        })
    }

    fn begins_with_word_scalar(&self) -> bool {
        matches!(self.peek(), Some(Token::Word(word)) if word != "offset" && word != "ties")
    }

    fn assignments(&mut self) -> Parsed<Vec<Assignment>> {
        self.list(|parser| {
            let attribute = parser.number()?;
            parser.expect(":=")?;
            Ok(Assignment { attribute, value: parser.scalar()? })
        })
    }

    fn images(&mut self) -> Parsed<Vec<Image>> {
        if !self.word("returning") {
            return Ok(Vec::new());
        }
        self.list(|parser| {
            let output = parser.definition()?;
            parser.expect("=")?;
            let old = parser.word("old");
            Ok(Image { output, attribute: parser.number()?, old })
        })
    }

    fn set_calls(&mut self) -> Parsed<SetCalls> {
        let calls = self.list(|parser| {
            let (function, arguments) = parser.function()?;
            parser.expect("->")?;
            Ok(SetCall { function, arguments, columns: parser.definitions()? })
        })?;
        let ordinality = if self.word("ordinality") { Some(self.definition()?) } else { None };
        Ok(SetCalls { calls, ordinality })
    }

    fn group(&mut self, input: NodeId) -> Parsed<Operator> {
        let keys = self.optional_columns("by")?;
        let determined = self.optional_columns("determined")?;
        let sets = match self.word("sets") {
            true => {
                let sets = self.list(|parser| parser.items("(", ")", Self::number))?;
                self.expect_word("as")?;
                let columns = self.definitions()?;
                let number = if self.word("number") { Some(self.definition()?) } else { None };
                Some(GroupingSets { columns, sets, number })
            }
            false => None,
        };
        let aggregates = match self.word("aggregates") {
            true => self.list(|parser| {
                let output = parser.definition()?;
                parser.expect(":=")?;
                let (function, arguments) = parser.function()?;
                let distinct = parser.word("distinct");
                let order = parser.optional_order("order")?;
                let filter = parser.optional_scalar("filter")?;
                Ok(Aggregate { output, function, arguments, distinct, order, filter })
            })?,
            false => Vec::new(),
        };
        Ok(Operator::Group(Group { input, keys, determined, sets, aggregates }))
    }

    fn frame(&mut self) -> Parsed<Frame> {
        if !self.word("frame") {
            return Ok(Frame::default());
        }
        let unit = match self.name()?.as_str() {
            "rows" => FrameUnit::Rows,
            "range" => FrameUnit::Range,
            "groups" => FrameUnit::Groups,
            other => return Err(format!("no unit {other}")),
        };
        let mut bounds = self.items("(", ")", Self::bound)?;
        if bounds.len() != 2 {
            return Err("not two bounds".to_owned());
        }
        let exclude = match self.word("exclude") {
            true => match self.name()?.as_str() {
                "current" => Exclude::CurrentRow,
                "group" => Exclude::Group,
                "peers" => Exclude::Ties,
                other => return Err(format!("no exclusion {other}")),
            },
            false => Exclude::NoOthers,
        };
        let end = bounds.pop().expect("there are two");
        let start = bounds.pop().expect("there are two");
        Ok(Frame { unit, start, end, exclude })
    }

    fn bound(&mut self) -> Parsed<Bound> {
        Ok(match self.name()?.as_str() {
            "first" => Bound::UnboundedPreceding,
            "preceding" => Bound::Preceding(self.scalar()?),
            "current" => Bound::CurrentRow,
            "following" => Bound::Following(self.scalar()?),
            "last" => Bound::UnboundedFollowing,
            other => return Err(format!("no bound {other}")),
        })
    }

    fn type_of(&self, scalar: &Scalar) -> Parsed<Type> {
        // Only columns need more than the scalar; all that it uses are known by now.
        let mut unknown = None;
        scalar.for_each_column(&mut |column| {
            if self.columns.get(column.0 as usize).and_then(Option::as_ref).is_none() {
                unknown = Some(column);
            }
        });
        if let Some(column) = unknown {
            return Err(format!("{column:?} is not produced before it is used"));
        }
        Ok(match scalar {
            Scalar::Column(column) => self.columns[column.0 as usize].as_ref().expect("it is known").ty,
            Scalar::Coalesce(list) => self.type_of(&list[0])?,
            Scalar::Case(case) => {
                self.type_of(case.arms.first().map_or(&case.otherwise, |(_, result)| result))?
            }
            other => other.ty(&Columns::default()),
        })
    }

    fn types_of(&self, scalars: &[Scalar]) -> Parsed<Vec<Type>> {
        scalars.iter().map(|scalar| self.type_of(scalar)).collect()
    }

    /// A function's name and arguments.
    fn function(&mut self) -> Parsed<(Function, Vec<Scalar>)> {
        let name = self.name()?;
        let arguments = self.items("(", ")", Self::scalar)?;
        let types = self.types_of(&arguments)?;
        let function = self.functions.named(&name, &types);
        let types = || types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
        Ok((function.ok_or_else(|| format!("no function {name}({})", types()))?, arguments))
    }

    fn operator_function(&self, symbol: &str, operands: &[Scalar]) -> Parsed<Function> {
        let mut types = self.types_of(operands)?;
        types.truncate(2);
        let function = self.functions.operator(symbol, &types);
        function.ok_or_else(|| format!("no operator {symbol} for {types:?}"))
    }

    fn call(&mut self, function: Function, as_operator: bool, arguments: Vec<Scalar>) -> Parsed<Scalar> {
        let ty = match self.word("as") {
            true => self.ty()?,
            false if is_polymorphic(function.result) && function.result != TypeId::RECORD => {
                return Err(format!("the type of {function:?} is missing"));
            }
            false => Type::new(function.result),
        };
        Ok(Scalar::Call(Box::new(Call { function, as_operator, arguments, ty })))
    }

    fn constant(&mut self, text: &str) -> Parsed<Scalar> {
        self.expect("::")?;
        let ty = self.ty()?;
        let value = read_value(text, ty).ok_or_else(|| format!("{text} is no {ty}"))?;
        Ok(Scalar::Constant(ty, value))
    }

    fn scalar(&mut self) -> Parsed<Scalar> {
        match self.peek().ok_or("a scalar is missing")? {
            Token::Column(_) => Ok(Scalar::Column(self.column()?)),
            Token::Mark("(") => self.parenthesised(),
            Token::Parameter(number) => {
                let number = *number;
                self.at += 1;
                self.expect("::")?;
                Ok(Scalar::Parameter(number, self.ty()?))
            }
            Token::Number(number) => {
                let text = number.to_string();
                self.at += 1;
                self.constant(&text)
            }
            Token::Text(text) => {
                let text = text.clone();
                self.at += 1;
                self.constant(&text)
            }
            Token::Word(word) => {
                let word = word.clone();
                self.word_scalar(&word)
            }
            Token::Name(_) => {
                let (function, arguments) = self.function()?;
                self.call(function, false, arguments)
            }
            other => Err(format!("a scalar instead of {other:?}")),
        }
    }

    fn word_scalar(&mut self, word: &str) -> Parsed<Scalar> {
        let begin = self.at;
        self.at += 1;
        Ok(match word {
            "null" => {
                self.expect("::")?;
                Scalar::Constant(self.ty()?, Value::Null)
            }
            "true" => Scalar::boolean(true),
            "false" => Scalar::boolean(false),
            "cast" | "coerce" => {
                self.expect("(")?;
                let argument = self.scalar()?;
                self.expect_word("as")?;
                let ty = self.ty()?;
                let function = match self.word("using") {
                    true => {
                        let name = self.name()?;
                        let from = self.type_of(&argument)?;
                        let found = self.functions.named(&name, &[from]);
                        Some(found.ok_or_else(|| format!("no function {name}({from})"))?)
                    }
                    false => None,
                };
                let can_fail = self.accept(",");
                if can_fail && !self.words(&["may", "fail"]) {
                    return Err("may fail is missing".to_owned());
                }
                self.expect(")")?;
                let implicit = word == "coerce";
                Scalar::Cast(Box::new(Cast { argument, ty, function, implicit, can_fail }))
            }
            "case" => {
                let at_when = matches!(self.peek(), Some(Token::Word(word)) if word == "when");
                let operand = if at_when { None } else { Some(self.scalar()?) };
                let mut arms = Vec::new();
                while self.word("when") {
                    let condition = self.scalar()?;
                    self.expect_word("then")?;
                    arms.push((condition, self.scalar()?));
                }
                self.expect_word("else")?;
                let otherwise = self.scalar()?;
                self.expect_word("end")?;
                Scalar::Case(Box::new(Case { operand, arms, otherwise }))
            }
            "case_value" => {
                self.expect("(")?;
                let ty = self.ty()?;
                self.expect(")")?;
                Scalar::CaseValue(ty)
            }
            "coalesce" => Scalar::Coalesce(self.items("(", ")", Self::scalar)?),
            "all_of" => Scalar::And(self.items("(", ")", Self::scalar)?),
            "any_of" => Scalar::Or(self.items("(", ")", Self::scalar)?),
            "row" => Scalar::Row(self.items("(", ")", Self::scalar)?),
            "array" => {
                let list = self.scalars()?;
                self.expect("::")?;
                Scalar::Array(self.ty()?, list)
            }
            "field" => {
                self.expect("(")?;
                let argument = self.scalar()?;
                self.expect(",")?;
                let index = self.number()?;
                self.expect_word("as")?;
                let ty = self.ty()?;
                self.expect(")")?;
                Scalar::Field(Box::new(argument), index, ty)
            }
            _ => {
                self.at = begin;
                let (function, arguments) = self.function()?;
                self.call(function, false, arguments)?
            }
        })
    }

    fn parenthesised(&mut self) -> Parsed<Scalar> {
        self.expect("(")?;
        if self.word("not") {
            let argument = self.scalar()?;
            self.expect(")")?;
            return Ok(Scalar::Not(Box::new(argument)));
        }
        if let Some(Token::Symbol(symbol)) = self.peek().cloned() {
            self.at += 1;
            let argument = self.scalar()?;
            self.expect(")")?;
            let function = self.operator_function(&symbol, std::slice::from_ref(&argument))?;
            return self.call(function, true, vec![argument]);
        }
        let first = self.scalar()?;
        match self.next()? {
            Token::Word(word) if word == "is" => self.is(first),
            Token::Word(word) if word == "and" || word == "or" => {
                let mut list = vec![first, self.scalar()?];
                while self.word(&word) {
                    list.push(self.scalar()?);
                }
                self.expect(")")?;
                Ok(if word == "and" { Scalar::And(list) } else { Scalar::Or(list) })
            }
            Token::Symbol(symbol) => {
                for (word, all) in [("any", false), ("all", true)] {
                    if self.word(word) {
                        return self.quantified(first, &symbol, all);
                    }
                }
                let mut operands = vec![first, self.scalar()?];
                while self.accept(&symbol) {
                    operands.push(self.scalar()?);
                }
                self.expect(")")?;
                let function = self.operator_function(&symbol, &operands)?;
                self.call(function, true, operands)
            }
            other => Err(format!("an operator instead of {other:?}")),
        }
    }

    fn is(&mut self, argument: Scalar) -> Parsed<Scalar> {
        let negated = self.word("not");
        let scalar = match self.name()?.as_str() {
            "null" => Scalar::IsNull(Box::new(argument), negated),
            "true" => Scalar::Test(Box::new(argument), Some(true), negated),
            "false" => Scalar::Test(Box::new(argument), Some(false), negated),
            "unknown" => Scalar::Test(Box::new(argument), None, negated),
            "distinct" => {
                self.expect_word("from")?;
                Scalar::Distinct(Box::new((argument, self.scalar()?)), negated)
            }
            other => return Err(format!("no test {other}")),
        };
        self.expect(")")?;
        Ok(scalar)
    }

    fn quantified(&mut self, argument: Scalar, symbol: &str, all: bool) -> Parsed<Scalar> {
        let left = self.type_of(&argument)?;
        let (values, right) = match self.peek() {
            Some(Token::Mark("[")) => {
                let list = self.scalars()?;
                let right = list.first().map_or(Ok(left), |value| self.type_of(value))?;
                (Values::List(list), right)
            }
            _ => {
                let array = self.scalar()?;
                let ty = self.type_of(&array)?;
                (Values::Array(array), ty.element().ok_or_else(|| format!("{ty} is no array"))?)
            }
        };
        self.expect(")")?;
        let function = self.functions.operator(symbol, &[left, right]);
        let function = function.ok_or_else(|| format!("no operator {symbol} for {left} and {right}"))?;
        Ok(Scalar::Quantified(Box::new(Quantified { function, all, argument, values })))
    }
}
