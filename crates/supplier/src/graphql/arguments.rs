//! Variables of an operation, and arguments of a field.

use super::selection::reject_directives;
use crate::filter::word;
use async_graphql_parser::types::{Field, OperationDefinition, OperationType, VariableDefinition};
use async_graphql_value::{ConstValue, Name, Value, Variables};
use std::collections::HashMap;

/// Values of all declared variables.
pub(crate) type BoundVariables = HashMap<Name, ConstValue>;

/// The declared variables of a query.
pub(crate) struct DeclaredVariables(HashMap<Name, Variable>);

struct Variable {
    is_required: bool,
    default: Option<ConstValue>,
}

impl DeclaredVariables {
    /// Reads the declarations of an operation, which must be a query without directives.
    pub(crate) fn compile(operation: &OperationDefinition) -> Result<Self, String> {
        if operation.ty != OperationType::Query {
            return Err("only queries are supported".to_owned());
        }
        reject_directives(&operation.directives)?;
        let variable = |definition: &VariableDefinition| {
            let default = definition.default_value().cloned();
            let is_required = !definition.var_type.node.nullable && default.is_none();
            (definition.name.node.clone(), Variable { is_required, default })
        };
        Ok(Self(operation.variable_definitions.iter().map(|one| variable(&one.node)).collect()))
    }

    /// Returns the values of all declared variables.
    pub(crate) fn bind(&self, given: &Variables) -> Result<BoundVariables, String> {
        let bind = |(name, variable): (&Name, &Variable)| {
            let value = given.get(name).or(variable.default.as_ref()).cloned().unwrap_or(ConstValue::Null);
            if variable.is_required && value == ConstValue::Null {
                return Err(format!("variable `${name}` is required"));
            }
            Ok((name.clone(), value))
        };
        self.0.iter().map(bind).collect()
    }
}

/// The arguments of a field, which may contain variables.
pub(crate) struct Arguments(Vec<(Name, Value)>);

impl Arguments {
    pub(crate) fn compile(field: &Field, allowed: &[&str]) -> Result<Self, String> {
        let argument = |name: &Name, value: &Value| {
            if allowed.contains(&name.as_str()) {
                return Ok((name.clone(), value.clone()));
            }
            Err(format!("field `{}` has no argument `{name}`", field.name.node))
        };
        field
            .arguments
            .iter()
            .map(|(name, value)| argument(&name.node, &value.node))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns the value of an argument; `null` if it is not given.
    pub(crate) fn value(&self, name: &str, variables: &BoundVariables) -> Result<ConstValue, String> {
        let Some((_, value)) = self.0.iter().find(|(own, _)| own == name) else {
            return Ok(ConstValue::Null);
        };
        value.clone().into_const_with(|name| {
            variables.get(&name).cloned().ok_or_else(|| format!("variable `${name}` is not defined"))
        })
    }

    pub(crate) fn text(&self, name: &str, variables: &BoundVariables) -> Result<String, String> {
        let value = self.value(name, variables)?;
        word(&value)
            .map(str::to_owned)
            .ok_or_else(|| format!("argument `{name}` must be a string, not {value}"))
    }
}
