//! A compiled selection of fields: the JSON text between the values is prepared once.

use crate::graphql::{Selections, check_leaf, response_key, subselection, unknown_field};
use crate::item::{ITEM, Kind, Shape, Write};
use crate::json_writer::JsonWriter;
use crate::stone::Stone;
use async_graphql_parser::types::SelectionSet;
use std::collections::HashMap;
use std::fmt::Write as _;

/// The fields that the pipeline selects of an item. The hashes of the truth cover this selection, in this order.
pub const STANDARD_SELECTION: &str = "id price discount diamond { id availability HoldId NivodaStockId \
    supplierStockId image video eyeClean brown green milky mine_of_origin \
    delivery_time { min_business_days max_business_days } \
    certificate { id lab certNumber pdfUrl shape carats clarity cut polish symmetry color length width depth \
    depthPercentage table crownAngle crownHeight pavAngle pavDepth floInt floCol girdle culetSize f_color \
    f_intensity f_overtone labgrown treated product_images { id url display_index } } \
    supplier { id name legal_name } }";

/// One step of writing an object.
enum Step {
    /// Text that is the same for every stone.
    Text(String),
    Value(Write),
    /// An object that a stone may lack.
    Object(fn(&Stone) -> bool, Vec<Step>),
    List(fn(&Stone) -> u8, Vec<Step>),
}

/// Writes objects with the fields of one selection.
pub(crate) struct Template(Vec<Step>);

impl Template {
    /// Compiles a selection on the type `shape`. `depth` is the nesting of the selection in its document.
    pub(crate) fn compile<'a>(
        selection: &'a SelectionSet,
        shape: &'static Shape,
        selections: &Selections<'a>,
        depth: usize,
    ) -> Result<Self, String> {
        object(selection, shape, selections, depth).map(Self)
    }

    /// Compiles [`STANDARD_SELECTION`].
    pub(crate) fn standard() -> Result<Self, String> {
        let document = async_graphql_parser::parse_query(format!("{{ {STANDARD_SELECTION} }}"));
        let document = document.map_err(|error| error.to_string())?;
        let (_, operation) = document.operations.iter().next().ok_or("the document has no operation")?;
        let fragments = HashMap::new();
        Self::compile(&operation.node.selection_set.node, &ITEM, &Selections::new(&fragments), 1)
    }

    /// Compiles a selection of all fields of `shape`, in their order.
    pub(crate) fn complete(shape: &'static Shape) -> Self {
        Self(all_fields(shape))
    }

    pub(crate) fn write(&self, stone: &Stone, out: &mut JsonWriter) {
        write_steps(&self.0, stone, 0, out);
    }
}

fn write_steps(steps: &[Step], stone: &Stone, index: u8, out: &mut JsonWriter) {
    for step in steps {
        match step {
            Step::Text(text) => {
                out.raw(text);
            }
            Step::Value(write) => write(stone, index, out),
            Step::Object(exists, inner) if exists(stone) => write_steps(inner, stone, index, out),
            Step::Object(..) => out.null(),
            Step::List(length, inner) => {
                out.raw("[");
                for index in 0..length(stone) {
                    out.raw(if index == 0 { "" } else { "," });
                    write_steps(inner, stone, index, out);
                }
                out.raw("]");
            }
        }
    }
}

fn all_fields(shape: &'static Shape) -> Vec<Step> {
    let mut steps = Vec::new();
    for (index, field) in shape.fields.iter().enumerate() {
        steps.push(Step::Text(format!("{}\"{}\":", if index == 0 { "{" } else { "," }, field.name)));
        steps.push(match &field.kind {
            Kind::Scalar(write) => Step::Value(*write),
            Kind::Object(shape, exists) => Step::Object(*exists, all_fields(shape)),
            Kind::List(shape, length) => Step::List(*length, all_fields(shape)),
        });
    }
    steps.push(Step::Text("}".to_owned()));
    steps
}

fn object<'a>(
    selection: &'a SelectionSet,
    shape: &'static Shape,
    selections: &Selections<'a>,
    depth: usize,
) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut text = String::from("{");
    for (index, field) in selections.fields(selection, shape.name, depth)?.into_iter().enumerate() {
        let name = field.name.node.as_str();
        if let Some((argument, _)) = field.arguments.first() {
            return Err(format!("field `{name}` has no argument `{}`", argument.node));
        }
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}\"{}\":", response_key(field));
        steps.push(Step::Text(std::mem::take(&mut text)));
        let inner =
            |inner_shape| object(subselection(field, shape.name)?, inner_shape, selections, depth + 1);
        steps.push(match &shape.field(name).ok_or_else(|| unknown_field(field, shape.name))?.kind {
            Kind::Scalar(write) => {
                check_leaf(field, shape.name)?;
                Step::Value(*write)
            }
            Kind::Object(shape, exists) => Step::Object(*exists, inner(shape)?),
            Kind::List(shape, length) => Step::List(*length, inner(shape)?),
        });
    }
    text.push('}');
    steps.push(Step::Text(text));
    Ok(steps)
}
