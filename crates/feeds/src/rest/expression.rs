//! CEL expressions over a record.
//!
//! CEL has no loops without an end and no access to the environment, but nested loops over a large record take hours.
//! The text, its nesting and the nesting of comprehensions are bounded when the expression is compiled. Before it runs,
//! its steps and the values that it builds are estimated from the lengths of the lists in the record; an expression
//! above the limit does not run. The expressions of one record share the limit. The size of a result is bounded too.

mod cost;

use cel::common::ast::{EntryExpr, Expr};
use cel::objects::{Key, Map};
use cel::{Context, IdedExpr, Program, Value};
use cost::{Estimate, Limits};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use tidemill_core::feed_definition::JsonValue;
use tidemill_core::limits::{EXPRESSION_BYTES_MAX, EXPRESSION_LOOPS_MAX};

/// Levels of nested brackets in an expression.
const BRACKETS_MAX: usize = 24;
/// Conditions (`a ? b : c`) in an expression.
const CONDITIONS_MAX: usize = 16;
/// Levels of the syntax tree.
const TREE_DEPTH_MAX: usize = 64;
/// Result bytes, unless the caller says otherwise.
const BYTES_MAX: usize = 256 * 1024;
/// Levels of nested lists and maps in a result.
const RESULT_DEPTH_MAX: usize = 32;

/// Why an expression cannot be compiled or evaluated. The message is the rest of a sentence that begins with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("does not compile: {0}")]
    Syntax(String),
    #[error("is longer than {EXPRESSION_BYTES_MAX} bytes")]
    TooLong,
    #[error("is nested too deeply")]
    TooDeep,
    #[error("has more than {EXPRESSION_LOOPS_MAX} nested comprehensions")]
    TooManyLoops,
    #[error("uses the unknown variable `{0}`; the only variable is `record`")]
    UnknownVariable(String),
    #[error("failed: {0}")]
    Evaluation(String),
    #[error("has a result that is not a JSON value")]
    ResultType,
    #[error("has a result of more than {0} bytes")]
    ResultTooLarge(usize),
    #[error("needs up to {steps} steps over this record, and {left} of {max} are left for it")]
    TooManySteps { steps: u64, left: u64, max: u64 },
    #[error("builds up to {values} values from this record; at most {max} are allowed")]
    TooManyValues { values: u64, max: u64 },
}

/// A compiled CEL expression over a record.
pub struct Expression {
    program: Program,
    bytes_max: usize,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expression").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}

impl Expression {
    /// Compiles an expression over the variable `record`.
    pub fn compile(text: &str) -> Result<Self, ExpressionError> {
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(ExpressionError::TooLong);
        }
        check_nesting(text)?;
        let program = Program::compile(text).map_err(|error| {
            let message = error.to_string();
            let line = message.lines().next().unwrap_or_default();
            ExpressionError::Syntax(line.chars().take(200).collect())
        })?;
        check_tree(program.expression(), 0, 0)?;
        if let Some(unknown) = program
            .references()
            .variables()
            .into_iter()
            .find(|name| *name != "record" && !is_bound(program.expression(), name))
        {
            return Err(ExpressionError::UnknownVariable(unknown.chars().take(60).collect()));
        }
        Ok(Self { program, bytes_max: BYTES_MAX })
    }

    /// Limits the size of results.
    #[must_use]
    pub fn with_bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Evaluates the expression over one record.
    pub fn evaluate(&self, record: &JsonValue) -> Result<JsonValue, ExpressionError> {
        Evaluator::new(record).evaluate(self)
    }
}

/// Evaluates expressions over one record, whose steps are limited together.
pub(super) struct Evaluator<'r> {
    record: &'r JsonValue,
    /// The limits and the steps that are left, and the record as a variable. Absent before the first expression.
    prepared: Option<Prepared>,
}

struct Prepared {
    limits: Limits,
    steps_left: u64,
    context: Context<'static, 'static>,
}

impl Prepared {
    fn new(record: &JsonValue) -> Self {
        let limits = Limits::of(record);
        let mut context = Context::default();
        context.add_variable_from_value("record", to_cel(record));
        Self { limits, steps_left: limits.steps, context }
    }
}

impl<'r> Evaluator<'r> {
    pub(super) const fn new(record: &'r JsonValue) -> Self {
        Self { record, prepared: None }
    }

    /// Evaluates an expression. Integers beyond 64 bits are texts in it, so that no digit is lost.
    pub(super) fn evaluate(&mut self, expression: &Expression) -> Result<JsonValue, ExpressionError> {
        let prepared = self.prepared.get_or_insert_with(|| Prepared::new(self.record));
        let program = &expression.program;
        let (steps, values) = Estimate::of(program.expression(), self.record);
        let Limits { steps: steps_max, values: values_max } = prepared.limits;
        if values > values_max {
            return Err(ExpressionError::TooManyValues { values, max: values_max });
        }
        let left = prepared.steps_left.checked_sub(steps);
        prepared.steps_left =
            left.ok_or(ExpressionError::TooManySteps { steps, left: prepared.steps_left, max: steps_max })?;
        let value = program.execute(&prepared.context).map_err(|error| {
            let message = error.to_string();
            ExpressionError::Evaluation(message.chars().take(200).collect())
        })?;
        let mut budget = Budget { left: expression.bytes_max, max: expression.bytes_max };
        from_cel(&value, 0, &mut budget)
    }
}

/// Bounds brackets and conditions before the parser sees them, because it is recursive.
fn check_nesting(text: &str) -> Result<(), ExpressionError> {
    let (mut depth, mut conditions) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'?' => conditions += 1,
            _ => {}
        }
        if depth > BRACKETS_MAX || conditions > CONDITIONS_MAX {
            return Err(ExpressionError::TooDeep);
        }
    }
    Ok(())
}

fn check_tree(node: &IdedExpr, depth: usize, loops: usize) -> Result<(), ExpressionError> {
    if depth > TREE_DEPTH_MAX {
        return Err(ExpressionError::TooDeep);
    }
    let is_loop = matches!(node.expr, Expr::Comprehension(_));
    let loops = loops + usize::from(is_loop);
    if loops > EXPRESSION_LOOPS_MAX {
        return Err(ExpressionError::TooManyLoops);
    }
    children(node).into_iter().try_for_each(|child| check_tree(child, depth + 1, loops))
}

fn children(node: &IdedExpr) -> Vec<&IdedExpr> {
    match &node.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => call.target.iter().map(|target| &**target).chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_children(&entry.expr)).collect(),
        Expr::Struct(value) => value.entries.iter().flat_map(|entry| entry_children(&entry.expr)).collect(),
        Expr::Comprehension(inner) => {
            vec![&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
        }
    }
}

fn entry_children(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

/// Returns whether a comprehension within the tree binds a name.
fn is_bound(node: &IdedExpr, name: &str) -> bool {
    if let Expr::Comprehension(inner) = &node.expr {
        let is_second = inner.iter_var2.as_deref() == Some(name);
        if inner.iter_var == name || inner.accu_var == name || is_second {
            return true;
        }
    }
    children(node).into_iter().any(|child| is_bound(child, name))
}

fn to_cel(value: &JsonValue) -> Value {
    match value {
        JsonValue::Null | JsonValue::Unstorable(_) => Value::Null,
        JsonValue::Bool(value) => Value::Bool(*value),
        JsonValue::Text(text) => Value::String(Arc::new(text.clone())),
        JsonValue::Number(digits) => number(digits),
        JsonValue::List(items) => Value::List(Arc::new(items.iter().map(to_cel).collect())),
        JsonValue::Object(entries) => {
            let entries =
                entries.iter().map(|(key, value)| (Key::String(Arc::new(key.clone())), to_cel(value)));
            Value::Map(Map { map: Arc::new(entries.collect::<HashMap<_, _>>()) })
        }
    }
}

fn number(digits: &str) -> Value {
    if let Ok(integer) = digits.parse::<i64>() {
        return Value::Int(integer);
    }
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    match digits.parse::<f64>() {
        Ok(float) if !is_integer && float.is_finite() => Value::Float(float),
        Ok(_) | Err(_) => Value::String(Arc::new(digits.to_owned())),
    }
}

/// The bytes that a result may still have.
struct Budget {
    left: usize,
    max: usize,
}

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), ExpressionError> {
        self.left = self.left.checked_sub(bytes).ok_or(ExpressionError::ResultTooLarge(self.max))?;
        Ok(())
    }
}

/// Converts the result of an expression to JSON, within limits.
fn from_cel(value: &Value, depth: usize, budget: &mut Budget) -> Result<JsonValue, ExpressionError> {
    if depth > RESULT_DEPTH_MAX {
        return Err(ExpressionError::TooDeep);
    }
    Ok(match value {
        Value::Null => JsonValue::Null,
        Value::Bool(value) => JsonValue::Bool(*value),
        Value::Int(number) => JsonValue::Number(number.to_string()),
        Value::UInt(number) => JsonValue::Number(number.to_string()),
        Value::Float(number) if number.is_finite() => JsonValue::Number(number.to_string()),
        Value::String(text) if text.contains('\0') => {
            JsonValue::Unstorable(tidemill_core::feed_definition::value::Unstorable::Nul)
        }
        Value::String(text) => {
            budget.take(text.len() + 2)?;
            JsonValue::Text(text.to_string())
        }
        Value::Timestamp(time) => {
            JsonValue::Text(time.to_utc().to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
        }
        Value::Duration(duration) => JsonValue::Number(duration.num_seconds().to_string()),
        Value::List(items) => {
            budget.take(items.len() + 2)?;
            JsonValue::List(
                items.iter().map(|item| from_cel(item, depth + 1, budget)).collect::<Result<_, _>>()?,
            )
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, value) in map.map.iter() {
                let key = match key {
                    Key::String(text) => text.to_string(),
                    Key::Int(number) => number.to_string(),
                    Key::Uint(number) => number.to_string(),
                    Key::Bool(value) => value.to_string(),
                };
                budget.take(key.len() + 4)?;
                entries.push((key, from_cel(value, depth + 1, budget)?));
            }
            // The order of a hash map is random; the same record must have the same text.
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            JsonValue::Object(entries)
        }
        Value::Float(_) | Value::Bytes(_) | Value::Function(..) | Value::Opaque(_) | Value::Struct(_) => {
            return Err(ExpressionError::ResultType);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str =
        r#"{"a":2,"b":"x","tags":["p","q"],"big":123456789012345678901,"f":1.5,"n":null,"o":{"k":1}}"#;

    fn evaluate(text: &str) -> Result<String, ExpressionError> {
        let record = JsonValue::parse(RECORD.as_bytes(), 64).unwrap();
        Expression::compile(text)?.with_bytes_max(1_000).evaluate(&record).map(|value| value.to_json())
    }

    #[test]
    fn expressions_are_evaluated_over_the_record() {
        for (text, expected) in [
            ("record.a + 1", "3"),
            ("record.b + '!'", "\"x!\""),
            ("record.big", "\"123456789012345678901\""),
            ("record.f * 2.0", "3"),
            ("record.tags.map(t, t + '1')", "[\"p1\",\"q1\"]"),
            ("has(record.z) ? 1 : 0", "0"),
            ("record.n == null", "true"),
            ("{'y': 1, 'x': record.o.k}", "{\"x\":1,\"y\":1}"),
            ("timestamp('2026-01-01T00:00:00Z')", "\"2026-01-01T00:00:00Z\""),
            ("record.b.matches('^x$')", "true"),
        ] {
            assert_eq!(evaluate(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_expressions_do_not_compile() {
        assert!(matches!(Expression::compile("1 +"), Err(ExpressionError::Syntax(_))));
        assert!(matches!(Expression::compile(&"1".repeat(2_000)), Err(ExpressionError::TooLong)));
        assert!(
            matches!(Expression::compile("env.HOME"), Err(ExpressionError::UnknownVariable(name)) if name == "env")
        );
        assert!(matches!(evaluate("record.missing"), Err(ExpressionError::Evaluation(_))));
    }

    #[test]
    fn deep_expressions_are_refused() {
        for text in [
            format!("{}1{}", "(".repeat(400), ")".repeat(400)),
            format!("{}1", "true?1:".repeat(100)),
            format!("1{}", "+1".repeat(500)),
            format!("record{}", ".a".repeat(500)),
        ] {
            let found = Expression::compile(&text).err();
            assert_eq!(found, Some(ExpressionError::TooDeep), "{}", &text[..20]);
        }
        let loops = "[1].map(a, [1].map(b, [1].map(c, c)))";
        assert_eq!(Expression::compile(loops).err(), Some(ExpressionError::TooManyLoops));
        assert!(Expression::compile("[1].map(a, [1].map(b, a + b))").is_ok());
    }

    #[test]
    fn nested_loops_over_a_large_record_are_refused_at_once() {
        let numbers = |count: usize| {
            let record = format!(r#"{{"id":1,"l":[{}]}}"#, vec!["0"; count].join(","));
            JsonValue::parse(record.as_bytes(), 64).unwrap()
        };
        let (small, large) = (numbers(100), numbers(120_000));
        for text in [
            "record.l.all(a, record.l.all(b, a == b))",
            "record.l.map(a, record.l)",
            "record.l.map(a, record.l.map(b, a + b))",
            "record.l.exists(a, record.l == record.l.map(b, b + a))",
            "record.l.all(a, string(a).matches('(a{100}){100}') || a in record.l)",
        ] {
            let expression = Expression::compile(text).unwrap();
            let began = std::time::Instant::now();
            let found = expression.evaluate(&large);
            let is_refused = matches!(
                found,
                Err(ExpressionError::TooManySteps { .. } | ExpressionError::TooManyValues { .. })
            );
            assert!(is_refused, "{text}: {found:?}");
            // It takes milliseconds; the loops would take hours.
            assert!(began.elapsed().as_secs() < 20, "{text}: {:?}", began.elapsed());
        }
        let nested = Expression::compile("record.l.all(a, record.l.all(b, a == b))").unwrap();
        assert_eq!(nested.evaluate(&small), Ok(JsonValue::Bool(true)));
        let once = Expression::compile("record.l.map(a, a + 1).exists(a, a == 2)").unwrap();
        assert_eq!(once.evaluate(&large), Ok(JsonValue::Bool(false)));
    }

    #[test]
    fn expressions_of_a_record_share_the_steps() {
        let record = format!(r#"{{"l":[{}]}}"#, vec!["0"; 100].join(","));
        let record = JsonValue::parse(record.as_bytes(), 64).unwrap();
        let nested = Expression::compile("record.l.all(a, record.l.all(b, a == b))").unwrap();
        let mut evaluator = Evaluator::new(&record);
        assert!(evaluator.evaluate(&nested).is_ok());
        let found = evaluator.evaluate(&nested);
        assert!(matches!(found, Err(ExpressionError::TooManySteps { .. })), "{found:?}");
        // A short expression still fits.
        let sum = Expression::compile("size(record.l) + 1").unwrap();
        assert_eq!(evaluator.evaluate(&sum).map(|sum| sum.to_json()).as_deref(), Ok("101"));
    }

    /// Any expression that runs ends soon, because its steps are limited. The limit of time is far above the usual one.
    #[test]
    fn expression_at_the_limit_of_steps_ends_soon() {
        let record =
            format!(r#"{{"l":[{}],"w":[{}]}}"#, vec!["7"; 100].join(","), vec!["\"abc\""; 100].join(","));
        let record = JsonValue::parse(record.as_bytes(), 64).unwrap();
        for text in [
            "record.l.all(a, record.l.all(b, a == b))",
            "record.w.map(a, a + a + a + a).all(a, a.matches('^(abc){4}$'))",
            "record.l.filter(a, a in record.l)",
        ] {
            let expression = Expression::compile(text).unwrap();
            let (steps, _) = Estimate::of(expression.program.expression(), &record);
            assert!(steps > 10_000, "{text} needs only {steps} steps");
            let began = std::time::Instant::now();
            expression.evaluate(&record).unwrap_or_else(|error| panic!("{text}: {error}"));
            let took = began.elapsed();
            println!("{text}: {steps} steps in {took:?}");
            assert!(took.as_secs() < 10, "{text}: {steps} steps took {took:?}");
        }
    }

    #[test]
    fn large_results_are_refused() {
        let list = "record.tags.map(t, record)";
        assert!(evaluate(list).is_ok());
        let record = format!(r#"{{"tags":[{}]}}"#, vec!["1"; 300].join(","));
        let record = JsonValue::parse(record.as_bytes(), 64).unwrap();
        let found = Expression::compile(list).unwrap().with_bytes_max(10_000).evaluate(&record);
        assert_eq!(found, Err(ExpressionError::ResultTooLarge(10_000)));
    }
}
