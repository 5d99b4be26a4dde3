//! Upper bounds of the steps and the memory that an expression needs over one record, computed before it runs.
//!
//! Lists of the record have their true length. The length of a list that the expression builds is bounded by its parts,
//! and a loop costs the length of its list times its body. A bound is below the real cost by a constant factor at most.

use super::children;
use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, operators};
use tidemill_core::feed_definition::JsonValue;
use tidemill_core::limits::{EXPRESSION_STEPS_MAX, EXPRESSION_VALUES_MAX};

/// Bytes of a text that count as one value.
const TEXT_BYTES: u64 = 32;
/// Steps for each value of a record that its expressions may always take, so that one loop fits any record.
const STEPS_PER_VALUE: u64 = 32;
/// Built values for each value of a record.
const BUILT_PER_VALUE: u64 = 4;
/// Steps to compile a state of a regular expression.
const STATE_STEPS: u64 = 10;
/// The same for a pattern with escapes or flags, because a class such as `\w` has many ranges.
const CLASS_STEPS: u64 = 100;

/// The steps and values that all expressions over one record may need together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) steps: u64,
    pub(super) values: u64,
}

impl Limits {
    pub(super) fn of(record: &JsonValue) -> Self {
        let values = Size::of(record).values;
        Self {
            steps: EXPRESSION_STEPS_MAX.max(values.saturating_mul(STEPS_PER_VALUE)),
            values: EXPRESSION_VALUES_MAX.saturating_add(values.saturating_mul(BUILT_PER_VALUE)),
        }
    }
}

/// Upper bound of a value.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    /// Number of values in it, where long texts count as several.
    values: u64,
    /// Length of the longest list or map in it.
    longest: u64,
    /// Number of values in its largest item.
    item: u64,
}

/// Size of a number, a boolean or a time.
const SCALAR: Size = Size { values: 1, longest: 0, item: 1 };

impl Size {
    fn of(value: &JsonValue) -> Self {
        let length = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        match value {
            JsonValue::Null | JsonValue::Bool(_) | JsonValue::Unstorable(_) => SCALAR,
            JsonValue::Number(text) | JsonValue::Text(text) => Self::of_text(text),
            JsonValue::List(items) => {
                let outer = Self { values: 1, longest: length(items.len()), item: 0 };
                items.iter().map(Self::of).fold(outer, Self::with)
            }
            JsonValue::Object(entries) => {
                let outer = Self { values: 1, longest: length(entries.len()), item: 0 };
                let sizes = entries.iter().map(|(key, value)| Self::of_text(key).with(Self::of(value)));
                sizes.fold(outer, Self::with)
            }
        }
    }

    fn of_text(text: &str) -> Self {
        Self { values: 1 + u64::try_from(text.len()).unwrap_or(u64::MAX) / TEXT_BYTES, ..SCALAR }
    }

    /// Size of a value with a further item.
    fn with(self, item: Self) -> Self {
        Self {
            values: self.values.saturating_add(item.values),
            longest: self.longest.max(item.longest),
            item: self.item.max(item.values),
        }
    }

    /// Size of either value.
    fn or(self, other: Self) -> Self {
        Self {
            values: self.values.max(other.values),
            longest: self.longest.max(other.longest),
            item: self.item.max(other.item),
        }
    }

    /// Size of two lists or texts as one.
    fn concatenated(self, other: Self) -> Self {
        Self {
            values: self.values.saturating_add(other.values),
            longest: self.longest.saturating_add(other.longest),
            item: self.item.max(other.item),
        }
    }

    /// Size of a part at any depth.
    const fn part(self) -> Self {
        Self { item: self.values, ..self }
    }
}

/// The value of a node: a part of the record, or a bound.
#[derive(Debug, Clone, Copy)]
enum Bound<'r> {
    Known(&'r JsonValue),
    Size(Size),
}

impl Bound<'_> {
    fn size(self) -> Size {
        match self {
            Self::Known(value) => Size::of(value),
            Self::Size(size) => size,
        }
    }

    /// Returns the number of rounds of a loop over the value.
    fn rounds(self) -> u64 {
        let count = match self {
            Self::Known(JsonValue::List(items)) => items.len(),
            Self::Known(JsonValue::Object(entries)) => entries.len(),
            Self::Known(_) => 0,
            Self::Size(size) => return size.longest,
        };
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// Returns the bound of an item, a key or a field.
    fn item(self) -> Size {
        match self {
            Self::Known(JsonValue::List(items)) => items.iter().map(Size::of).fold(SCALAR, Size::or).part(),
            Self::Known(JsonValue::Object(entries)) => {
                let sizes = entries.iter().map(|(key, value)| Size::of_text(key).or(Size::of(value)));
                sizes.fold(SCALAR, Size::or).part()
            }
            Self::Known(_) => SCALAR,
            Self::Size(size) => Size { values: size.item, ..size }.part(),
        }
    }
}

/// Computes the bounds of one expression over one record.
pub(super) struct Estimate<'r, 'e> {
    record: &'r JsonValue,
    /// Variables of the surrounding loops, the innermost last.
    variables: Vec<(&'e str, Bound<'r>)>,
    /// Size of the largest value that the expression builds.
    built: u64,
}

impl<'r, 'e> Estimate<'r, 'e> {
    /// Returns upper bounds of the steps, and of the values in the largest value that the expression builds.
    pub(super) fn of(expression: &'e IdedExpr, record: &'r JsonValue) -> (u64, u64) {
        let mut estimate = Self { record, variables: Vec::new(), built: 0 };
        let (_, steps) = estimate.visit(expression);
        (steps, estimate.built)
    }

    fn visit(&mut self, node: &'e IdedExpr) -> (Bound<'r>, u64) {
        match &node.expr {
            Expr::Ident(name) => {
                let bound = self.variables.iter().rev().find(|(known, _)| known == name);
                (bound.map_or(Bound::Known(self.record), |(_, bound)| *bound), 1)
            }
            Expr::Literal(LiteralValue::String(text)) => (Bound::Size(Size::of_text(text.inner())), 1),
            Expr::Literal(_) | Expr::Unspecified => (Bound::Size(SCALAR), 1),
            Expr::Select(select) => {
                let (operand, steps) = self.visit(&select.operand);
                let field = match operand {
                    Bound::Known(value) => value.get(&select.field).map_or(Bound::Size(SCALAR), Bound::Known),
                    Bound::Size(size) => Bound::Size(size.part()),
                };
                (if select.test { Bound::Size(SCALAR) } else { field }, steps.saturating_add(1))
            }
            Expr::Call(call) => self.visit_call(call),
            Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => self.visit_literal(node),
            Expr::Comprehension(inner) => self.visit_loop(inner),
        }
    }

    /// Visits a list or a map whose parts are copied into it.
    fn visit_literal(&mut self, node: &'e IdedExpr) -> (Bound<'r>, u64) {
        let parts = children(node);
        let longest = u64::try_from(parts.len()).unwrap_or(u64::MAX);
        let (mut size, mut steps) = (Size { values: 1, longest, item: 0 }, 1_u64);
        for part in parts {
            let (bound, cost) = self.visit(part);
            size = size.with(bound.size());
            steps = steps.saturating_add(cost);
        }
        (self.build(size), steps.saturating_add(size.values))
    }

    fn visit_call(&mut self, call: &'e CallExpr) -> (Bound<'r>, u64) {
        let parts = call.target.iter().map(|target| &**target).chain(&call.args);
        let (mut bounds, mut steps) = (Vec::with_capacity(3), 1_u64);
        for part in parts {
            let (bound, cost) = self.visit(part);
            bounds.push(bound);
            steps = steps.saturating_add(cost);
        }
        let scalar = Bound::Size(SCALAR);
        let (bound, cost) = match (call.func_name.as_str(), bounds.as_slice()) {
            (operators::CONDITIONAL, [_, one, other]) => (Bound::Size(one.size().or(other.size())), 0),
            (
                operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::NOT_STRICTLY_FALSE,
                _,
            )
            | ("size", [Bound::Known(JsonValue::List(_) | JsonValue::Object(_))]) => (scalar, 0),
            (
                operators::EQUALS
                | operators::NOT_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS,
                [one, other],
            ) => (scalar, one.size().values.min(other.size().values)),
            (operators::IN, [_, list]) => (scalar, list.size().values),
            (operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT, [list, _]) => {
                let item = list.item();
                (Bound::Size(item), item.values)
            }
            ("matches", [text, pattern]) => (scalar, matching(text.size(), *pattern, call.args.last())),
            (_, parts) => {
                let sizes = parts.iter().copied().map(Bound::size);
                let size = sizes.fold(Size::default(), Size::concatenated).or(SCALAR);
                (self.build(size), size.values)
            }
        };
        (bound, steps.saturating_add(cost))
    }

    fn visit_loop(&mut self, inner: &'e ComprehensionExpr) -> (Bound<'r>, u64) {
        let (range, range_steps) = self.visit(&inner.iter_range);
        let (_, first_steps) = self.visit(&inner.accu_init);
        let (rounds, item) = (range.rounds(), Bound::Size(range.item()));
        let outer = self.variables.len();
        // The library appends to the list of `map` and `filter` in place, so it is empty in the estimate of a round.
        self.variables.push((&inner.accu_var, Bound::Size(Size::default())));
        self.variables.push((&inner.iter_var, item));
        self.variables.extend(inner.iter_var2.as_deref().map(|name| (name, item)));
        let (_, condition_steps) = self.visit(&inner.loop_cond);
        let (step, step_steps) = self.visit(&inner.loop_step);
        self.variables.truncate(outer);
        let builds_list = matches!(inner.accu_init.expr, Expr::List(_));
        let step = step.size();
        let accumulated = if builds_list {
            let values = rounds.saturating_mul(step.values).saturating_add(1);
            self.build(Size { values, longest: rounds.max(step.longest), item: step.item })
        } else {
            Bound::Size(SCALAR)
        };
        self.variables.push((&inner.accu_var, accumulated));
        let (result, result_steps) = self.visit(&inner.result);
        self.variables.truncate(outer);
        let round = condition_steps.saturating_add(step_steps).saturating_add(1);
        let steps = [range_steps, first_steps, result_steps, range.size().values];
        let steps = steps.into_iter().fold(rounds.saturating_mul(round), u64::saturating_add);
        (result, steps)
    }

    fn build(&mut self, size: Size) -> Bound<'r> {
        self.built = self.built.max(size.values);
        Bound::Size(size)
    }
}

/// Returns the steps of a match, for which the pattern is compiled each time.
fn matching(text: Size, pattern: Bound<'_>, node: Option<&IdedExpr>) -> u64 {
    let pattern = if let Bound::Known(JsonValue::Text(text)) = pattern {
        text.as_str()
    } else if let Some(Expr::Literal(LiteralValue::String(text))) = node.map(|node| &node.expr) {
        text.inner()
    } else {
        return u64::MAX;
    };
    let has_classes = pattern.contains('\\') || pattern.contains("(?");
    let states = states(pattern);
    let compiling = states.saturating_mul(if has_classes { CLASS_STEPS } else { STATE_STEPS });
    compiling.saturating_add(text.values.saturating_mul(states))
}

/// Returns an upper bound of the states of a regular expression: its length times its numbers of repetitions.
fn states(pattern: &str) -> u64 {
    let numbers = pattern.split('{').skip(1).map(|rest| {
        let end = rest.find('}').unwrap_or(rest.len());
        let counts = rest[..end].split(',').map(|count| count.trim().parse().unwrap_or(1));
        counts.max().unwrap_or(1).max(1)
    });
    let length = u64::try_from(pattern.len()).unwrap_or(u64::MAX).saturating_add(1);
    numbers.fold(length, u64::saturating_mul)
}
