//! A selection of fields, prepared for writing: the texts between the values are put together once.

use crate::item::{ITEM, Kind, Shape, Write};
use crate::out::Out;
use crate::stone::Stone;
use async_graphql::parser::types::{Selection, SelectionSet};
use std::fmt::Write as _;

/// What the pipeline selects of an item. The hashes of the truth are over this selection, in this order.
pub const STANDARD_SELECTION: &str = "id price discount diamond { id availability HoldId NivodaStockId \
    supplierStockId image video eyeClean brown green milky mine_of_origin \
    delivery_time { min_business_days max_business_days } \
    certificate { id lab certNumber pdfUrl shape carats clarity cut polish symmetry color length width depth \
    depthPercentage table crownAngle crownHeight pavAngle pavDepth floInt floCol girdle culetSize f_color \
    f_intensity f_overtone labgrown treated product_images { id url display_index } } \
    supplier { id name legal_name } }";

/// One step of writing an item.
enum Step {
    /// Text that is the same for every stone.
    Text(String),
    /// A value.
    Value(Write),
    /// An object that a stone may lack.
    Object(fn(&Stone) -> bool, Vec<Step>),
    /// A list of objects.
    List(fn(&Stone) -> u8, Vec<Step>),
}

/// Writes items with the fields of one selection.
pub(crate) struct Template(Vec<Step>);

impl Template {
    /// Prepares a selection of an item's fields; nothing where it is more than plain fields.
    pub(crate) fn new(selection: &SelectionSet) -> Option<Self> {
        object(selection, &ITEM).map(Self)
    }

    /// The selection of the pipeline.
    pub(crate) fn standard() -> Option<Self> {
        let document = async_graphql::parser::parse_query(format!("{{ {STANDARD_SELECTION} }}")).ok()?;
        let (_, operation) = document.operations.iter().next()?;
        Self::new(&operation.node.selection_set.node)
    }

    /// Writes an item.
    pub(crate) fn write(&self, stone: &Stone, out: &mut Out) {
        steps(&self.0, stone, 0, out);
    }
}

fn steps(all: &[Step], stone: &Stone, index: u8, out: &mut Out) {
    for step in all {
        match step {
            Step::Text(text) => {
                out.raw(text);
            }
            Step::Value(write) => write(stone, index, out),
            Step::Object(present, inner) if present(stone) => steps(inner, stone, index, out),
            Step::Object(..) => out.null(),
            Step::List(length, inner) => {
                out.raw("[");
                for index in 0..length(stone) {
                    out.raw(if index == 0 { "" } else { "," });
                    steps(inner, stone, index, out);
                }
                out.raw("]");
            }
        }
    }
}

fn object(selection: &SelectionSet, shape: &'static Shape) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut text = String::from("{");
    let mut keys: Vec<&str> = Vec::new();
    for one in &selection.items {
        let Selection::Field(field) = &one.node else { return None };
        let field = &field.node;
        let key = field.response_key().node.as_str();
        if !field.directives.is_empty() || !field.arguments.is_empty() || keys.contains(&key) {
            return None;
        }
        let comma = if keys.is_empty() { "" } else { "," };
        keys.push(key);
        let _ = write!(text, "{comma}\"{key}\":");
        let inner = &field.selection_set.node;
        let step = match &shape.field(field.name.node.as_str())?.kind {
            Kind::Scalar(_, write) if inner.items.is_empty() => Step::Value(*write),
            Kind::Scalar(..) => return None,
            Kind::Object(shape, present) => Step::Object(*present, object(inner, shape)?),
            Kind::List(shape, length) => Step::List(*length, object(inner, shape)?),
        };
        steps.push(Step::Text(std::mem::take(&mut text)));
        steps.push(step);
    }
    if keys.is_empty() {
        return None;
    }
    text.push('}');
    steps.push(Step::Text(text));
    Some(steps)
}
