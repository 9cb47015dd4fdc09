//! The output of EXPLAIN: the plan as lines of text, or as a tree in JSON, YAML or XML with PostgreSQL's structure.
//!
//! An operator that PostgreSQL has under another name has that name in the tree. `Details` is its line of the text form.
//!
//! Times are sums over all threads. In the text they are those of each operator alone; in the tree those of an operator and all
//! below it, as in PostgreSQL.

use crate::options::{ExplainFormat, ExplainOptions};
use firn_base::stack::Tree;
use firn_base::sync::Arc;
use firn_base::{Value, json, stack};
use firn_executor::{Measured, Measures};
use firn_plan::operator::{JoinKind, JoinMethod, Operator, Window};
use firn_plan::text::{operator_line, print_with};
use firn_plan::verify::name;
use firn_plan::{NodeId, Plan, Scalar};
use firn_syntax::print::quote_name;
use std::fmt::Write;
use std::time::Duration;

/// An explained statement.
pub struct Explanation {
    plan: Tree<Plan>,
    options: ExplainOptions,
    /// The expected number of rows of each operator, unless estimates are not printed.
    estimates: Option<Vec<f64>>,
    /// The index by which each scan finds its rows, if it uses one.
    indexes: Vec<Option<String>>,
    /// The measures of each operator, if it is measured.
    measures: Option<Arc<Measures>>,
    run: Option<Run>,
    planning: Option<Duration>,
}

/// The measures of the whole statement.
#[derive(Clone, Copy)]
pub struct Run {
    /// How many rows it has returned or changed.
    pub rows: u64,
    /// How long it took.
    pub time: Duration,
    /// How many bytes of temporary files it has written.
    pub temporary: u64,
}

/// An operator of the tree.
struct Node {
    properties: Vec<(&'static str, Property)>,
    inputs: Vec<Node>,
}

/// The value of a property.
enum Property {
    Text(String),
    Flag(bool),
    Count(u64),
    Millis(f64),
}

impl Explanation {
    /// Explains a plan.
    pub fn new(
        plan: &Plan,
        options: ExplainOptions,
        estimates: Option<Vec<f64>>,
        indexes: Vec<Option<String>>,
        measures: Option<Arc<Measures>>,
    ) -> Explanation {
        let plan = stack::with_room_for(plan.depth() as u32, || Tree::new(plan.clone()));
        Explanation { plan, options, estimates, indexes, measures, run: None, planning: None }
    }

    /// Adds the measures of a run.
    pub fn note_run(&mut self, run: Run) {
        self.run = Some(run);
    }

    /// Adds the time of planning.
    pub fn note_planning(&mut self, time: Duration) {
        self.planning = Some(time);
    }

    /// The rows of the result: lines of text, or the tree in one row.
    pub fn into_rows(self) -> Vec<String> {
        stack::with_room_for(self.plan.depth() as u32, || self.rows())
    }

    fn rows(&self) -> Vec<String> {
        let execution = self.run.filter(|_| self.options.summary).map(|run| run.time);
        let times = [("Planning Time", self.planning), ("Execution Time", execution)];
        let times = times.into_iter().filter_map(|(name, time)| Some((name, millis(time?))));
        let mut out = String::new();
        match self.options.format {
            ExplainFormat::Text => {
                let text = print_with(&self.plan, |node| self.note(node));
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                if let Some(run) = self.run {
                    lines.push(format!("Rows: {}", run.rows));
                    let kilobytes = run.temporary.div_ceil(1024);
                    lines.extend((kilobytes > 0).then(|| format!("Temporary Files: {kilobytes}kB")));
                }
                lines.extend(times.map(|(name, time)| format!("{name}: {time:.3} ms")));
                return lines;
            }
            ExplainFormat::Json => {
                out.push_str("[\n  {\n    \"Plan\": ");
                self.tree().json(2, &mut out);
                for (name, time) in times {
                    put(&mut out, format_args!(",\n    \"{name}\": {time:.3}"));
                }
                out.push_str("\n  }\n]");
            }
            ExplainFormat::Yaml => {
                out.push_str("- Plan: ");
                self.tree().yaml(2, &mut out);
                for (name, time) in times {
                    put(&mut out, format_args!("\n  {name}: {time:.3}"));
                }
            }
            ExplainFormat::Xml => {
                out.push_str("<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n  <Query>");
                self.tree().xml(2, &mut out);
                for (name, time) in times {
                    let tag = tag(name);
                    put(&mut out, format_args!("\n    <{tag}>{time:.3}</{tag}>"));
                }
                out.push_str("\n  </Query>\n</explain>");
            }
        }
        vec![out]
    }

    /// The estimates and measures of an operator, for the end of its line.
    fn note(&self, node: NodeId) -> String {
        let mut note = String::new();
        if let Some(index) = &self.indexes[node.index()] {
            put(&mut note, format_args!(" using {}", quote_name(index)));
        }
        if let Some(estimates) = &self.estimates {
            put(&mut note, format_args!(" (rows={:.0})", estimates[node.index()]));
        }
        match self.measured(node) {
            None | Some(Measured::Within) => {}
            Some(Measured::NotRun) => note.push_str(" (never executed)"),
            Some(Measured::Run { rows, time, memory, spilled }) => {
                put(&mut note, format_args!(" (actual rows={rows}"));
                if self.options.timing {
                    put(&mut note, format_args!(" time={:.3}", millis(time)));
                }
                for (word, bytes) in [("memory", memory), ("spilled", spilled)] {
                    if bytes > 0 {
                        put(&mut note, format_args!(" {word}={}kB", bytes.div_ceil(1 << 10)));
                    }
                }
                note.push(')');
            }
        }
        note
    }

    /// The measures of an operator, if the statement was run and measured.
    fn measured(&self, node: NodeId) -> Option<Measured> {
        self.run.and(self.measures.as_ref()).map(|measures| measures.get(node))
    }

    /// The plan as a tree.
    fn tree(&self) -> Node {
        let mut root = self.node(self.plan.root, None).0;
        if let Some(run) = self.run.filter(|_| self.measures.is_none()) {
            root.properties.extend(self.actual(run.rows, run.time));
        }
        if let Some(run) = self.run.filter(|run| run.temporary > 0 && self.measures.is_none()) {
            root.properties.push(("Temp Written Bytes", Property::Count(run.temporary)));
        }
        root
    }

    /// The measures of an operator, including those below it.
    fn actual(&self, rows: u64, time: Duration) -> Vec<(&'static str, Property)> {
        let mut properties = Vec::new();
        if self.options.timing {
            properties.push(("Actual Startup Time", Property::Millis(0.0)));
            properties.push(("Actual Total Time", Property::Millis(millis(time))));
        }
        properties.push(("Actual Rows", Property::Count(rows)));
        properties.push(("Actual Loops", Property::Count(1)));
        properties
    }

    /// An operator with its inputs, with its relationship to its parent if it is an input, and the time of all of them.
    fn node(&self, id: NodeId, relationship: Option<&'static str>) -> (Node, Duration) {
        let operator = &self.plan[id];
        let mut properties = properties(&self.plan, operator, relationship);
        if let Some(index) = &self.indexes[id.index()] {
            properties[0].1 = Property::Text("Index Scan".to_owned());
            properties.push(("Index Name", Property::Text(index.clone())));
        }
        let of_inputs: [&str; 2] = match operator {
            Operator::UnionAll { .. } => ["Member", "Member"],
            _ => ["Outer", "Inner"],
        };
        let (mut inputs, mut total) = (Vec::new(), Duration::ZERO);
        for (place, input) in operator.inputs().into_iter().enumerate() {
            let (input, time) = self.node(input, Some(of_inputs[place.min(1)]));
            inputs.push(input);
            total += time;
        }
        if let Some(estimates) = &self.estimates {
            properties.push(("Plan Rows", Property::Count(estimates[id.index()].round() as u64)));
        }
        match self.measured(id) {
            None | Some(Measured::Within) => {}
            Some(Measured::NotRun) => {
                properties.push(("Actual Rows", Property::Count(0)));
                properties.push(("Actual Loops", Property::Count(0)));
            }
            Some(Measured::Run { rows, time, memory, spilled }) => {
                total += time;
                properties.extend(self.actual(rows, total));
                if memory > 0 {
                    // In kilobytes, as PostgreSQL's.
                    properties.push(("Peak Memory Usage", Property::Count(memory.div_ceil(1 << 10))));
                }
                if spilled > 0 {
                    properties.push(("Temp Written Bytes", Property::Count(spilled)));
                }
            }
        }
        (Node { properties, inputs }, total)
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("strings take all");
}

fn new_line(level: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", level));
}

/// The properties of an operator.
fn properties(
    plan: &Plan,
    operator: &Operator,
    relationship: Option<&'static str>,
) -> Vec<(&'static str, Property)> {
    let text = |text: &str| Property::Text(text.to_owned());
    let mut properties = vec![("Node Type", text(node_type(operator)))];
    properties.extend(relationship.map(|word| ("Parent Relationship", text(word))));
    properties.push(("Parallel Aware", Property::Flag(false)));
    match operator {
        Operator::Scan(scan) => {
            properties.extend(scan.name.as_deref().map(|name| ("Relation Name", text(name))));
            properties.extend(scan.name.as_deref().map(|name| ("Alias", text(name))));
        }
        Operator::Join(join) => {
            let kind = match join.kind {
                JoinKind::Inner => "Inner",
                JoinKind::Left => "Left",
                JoinKind::Full => "Full",
                JoinKind::Semi => "Semi",
                JoinKind::Anti => "Anti",
                JoinKind::Mark => "Mark",
                JoinKind::Single => "Single",
            };
            properties.push(("Join Type", text(kind)));
        }
        Operator::Window(Window { first: Some(first), .. }) => {
            let count = match first {
                Scalar::Constant(_, Value::BigInt(count)) => count.to_string(),
                Scalar::Parameter(number, _) => format!("${number}"),
                other => panic!("{other:?} is no count"),
            };
            let condition = format!("(row_number() OVER (?) <= {count})");
            properties.push(("Run Condition", Property::Text(condition)));
        }
        Operator::Insert(_) | Operator::Update(_) | Operator::Delete { .. } | Operator::Merge(_) => {
            properties.push(("Operation", text(name(operator))));
        }
        _ => {}
    }
    properties.push(("Details", Property::Text(operator_line(&plan.columns, operator))));
    properties
}

/// PostgreSQL's name of an operator; ours, if it has none of the kind.
fn node_type(operator: &Operator) -> &'static str {
    match operator {
        Operator::Scan(_) => "Seq Scan",
        Operator::Values { columns, .. } if columns.is_empty() => "Result",
        Operator::Values { .. } => "Values Scan",
        Operator::TableFunction(_) => "Function Scan",
        Operator::FlatMap { .. } => "ProjectSet",
        Operator::Join(join) => match join.method {
            JoinMethod::BuildRight | JoinMethod::BuildLeft => "Hash Join",
            JoinMethod::Index(_) => "Nested Loop",
        },
        Operator::Group(_) => "Aggregate",
        Operator::Window(_) => "WindowAgg",
        Operator::Sort { .. } => "Sort",
        Operator::Limit(_) => "Limit",
        Operator::DistinctOn { .. } => "Unique",
        Operator::Sample { .. } => "Sample Scan",
        Operator::UnionAll { .. } => "Append",
        Operator::Iterate(_) => "Recursive Union",
        Operator::IterateRead { .. } => "WorkTable Scan",
        Operator::SharedRead { .. } => "CTE Scan",
        Operator::Lock { .. } => "LockRows",
        Operator::Insert(_) | Operator::Update(_) | Operator::Delete { .. } | Operator::Merge(_) => {
            "ModifyTable"
        }
        other => name(other),
    }
}

impl Node {
    fn json(&self, level: usize, out: &mut String) {
        out.push('{');
        for (place, (name, property)) in self.properties.iter().enumerate() {
            out.push_str(if place == 0 { "" } else { "," });
            new_line(level + 1, out);
            put(out, format_args!("\"{name}\": "));
            property.json(out);
        }
        if !self.inputs.is_empty() {
            out.push(',');
            new_line(level + 1, out);
            out.push_str("\"Plans\": [");
            for (place, input) in self.inputs.iter().enumerate() {
                out.push_str(if place == 0 { "" } else { "," });
                new_line(level + 2, out);
                input.json(level + 2, out);
            }
            new_line(level + 1, out);
            out.push(']');
        }
        new_line(level, out);
        out.push('}');
    }

    fn yaml(&self, level: usize, out: &mut String) {
        for (name, property) in &self.properties {
            // The first property of an item of a list follows its dash.
            if !out.ends_with("- ") {
                new_line(level, out);
            }
            put(out, format_args!("{name}: "));
            property.json(out);
        }
        if !self.inputs.is_empty() {
            new_line(level, out);
            out.push_str("Plans: ");
            for input in &self.inputs {
                new_line(level + 1, out);
                out.push_str("- ");
                input.yaml(level + 2, out);
            }
        }
    }

    fn xml(&self, level: usize, out: &mut String) {
        new_line(level, out);
        out.push_str("<Plan>");
        for (name, property) in &self.properties {
            let tag = tag(name);
            new_line(level + 1, out);
            put(out, format_args!("<{tag}>"));
            property.xml(out);
            put(out, format_args!("</{tag}>"));
        }
        if !self.inputs.is_empty() {
            new_line(level + 1, out);
            out.push_str("<Plans>");
            self.inputs.iter().for_each(|input| input.xml(level + 2, out));
            new_line(level + 1, out);
            out.push_str("</Plans>");
        }
        new_line(level, out);
        out.push_str("</Plan>");
    }
}

impl Property {
    /// As JSON, which is also valid in YAML.
    fn json(&self, out: &mut String) {
        match self {
            Property::Text(text) => json::write_string(text, out),
            other => other.plain(out),
        }
    }

    fn xml(&self, out: &mut String) {
        match self {
            Property::Text(text) => {
                for character in text.chars() {
                    match character {
                        '&' => out.push_str("&amp;"),
                        '<' => out.push_str("&lt;"),
                        '>' => out.push_str("&gt;"),
                        other => out.push(other),
                    }
                }
            }
            other => other.plain(out),
        }
    }

    fn plain(&self, out: &mut String) {
        match self {
            Property::Text(text) => out.push_str(text),
            Property::Flag(flag) => put(out, format_args!("{flag}")),
            Property::Count(count) => put(out, format_args!("{count}")),
            Property::Millis(time) => put(out, format_args!("{time:.3}")),
        }
    }
}

/// The name of a property in XML.
fn tag(name: &str) -> String {
    name.replace(' ', "-")
}
