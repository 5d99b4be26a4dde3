//! The GraphQL schema, built from the tables of fields, and its general executor.

use crate::desk::{BAD_TOKEN, Desk, PageAsk};
use crate::filter::{QUERY_FIELDS, Query};
use crate::item::{DIAMOND, Field as ItemField, ITEM, Kind, Shape};
use crate::out::Out;
use crate::stone::Stone;
use async_graphql::dynamic::{
    Enum, Field, FieldFuture, FieldValue, InputObject, InputValue, Object, ResolverContext, Schema,
    SchemaBuilder, SchemaError, TypeRef,
};
use async_graphql::{Error, ErrorExtensions as _, Value};
use std::sync::Arc;

/// How deep a query may nest.
pub(crate) const MAX_DEPTH: usize = 16;

/// What stands behind an object of the answer: a stone, and the place in a list where that matters.
#[derive(Clone, Copy)]
struct Part(Stone, u8);

/// The stones of a page.
struct Page(Vec<Stone>);

/// The schema of the API.
pub(crate) fn build() -> Result<Schema, SchemaError> {
    let mut builder = Schema::build("Query", None, None)
        .limit_depth(MAX_DEPTH)
        .limit_complexity(2_000)
        .register(query())
        .register(authenticate())
        .register(Object::new("Token").field(Field::new("token", TypeRef::named_nn("String"), |ctx| {
            let value = ctx.parent_value.as_value().cloned();
            FieldFuture::from_value(value)
        })))
        .register(session())
        .register(page());
    builder = inputs(builder);
    let mut names = Vec::new();
    register(builder, &ITEM, &mut names).finish()
}

/// Registers an object type and everything under it.
fn register(builder: SchemaBuilder, shape: &'static Shape, names: &mut Vec<&'static str>) -> SchemaBuilder {
    if names.contains(&shape.name) {
        return builder;
    }
    names.push(shape.name);
    let mut builder = builder;
    let mut object = Object::new(shape.name);
    for field in shape.fields {
        object = object.field(item_field(field));
        if let Kind::Object(inner, _) | Kind::List(inner, _) = &field.kind {
            builder = register(builder, inner, names);
        }
    }
    builder.register(object)
}

fn item_field(field: &'static ItemField) -> Field {
    let part = |ctx: &ResolverContext<'_>| ctx.parent_value.try_downcast_ref::<Part>().copied();
    match &field.kind {
        Kind::Scalar(kind, write) => Field::new(field.name, TypeRef::named(*kind), move |ctx| {
            FieldFuture::new(async move {
                let Part(stone, index) = part(&ctx)?;
                let mut out = Out::default();
                write(&stone, index, &mut out);
                Ok(Some(serde_json::from_slice::<Value>(&out.0)?))
            })
        }),
        Kind::Object(shape, present) => Field::new(field.name, TypeRef::named(shape.name), move |ctx| {
            FieldFuture::new(async move {
                let part = part(&ctx)?;
                Ok(present(&part.0).then(|| FieldValue::owned_any(part)))
            })
        }),
        Kind::List(shape, length) => Field::new(field.name, TypeRef::named_nn_list(shape.name), move |ctx| {
            FieldFuture::new(async move {
                let Part(stone, _) = part(&ctx)?;
                let parts = (0..length(&stone)).map(move |index| FieldValue::owned_any(Part(stone, index)));
                Ok(Some(FieldValue::list(parts)))
            })
        }),
    }
}

fn desk<'a>(ctx: &ResolverContext<'a>) -> Result<&'a Arc<Desk>, Error> {
    ctx.ctx.data::<Arc<Desk>>()
}

fn unauthenticated(message: &str) -> Error {
    Error::new(message).extend_with(|_, extensions| extensions.set("code", "UNAUTHENTICATED"))
}

fn query() -> Object {
    let everybody = |name| {
        Field::new(name, TypeRef::named_nn("Authenticate"), |_| {
            FieldFuture::new(async { Ok(Some(FieldValue::owned_any(()))) })
        })
    };
    let known = Field::new("as", TypeRef::named_nn("Session"), |ctx| {
        FieldFuture::new(async move {
            let token = ctx.args.try_get("token")?;
            let valid = desk(&ctx)?.accepts(token.string()?);
            if valid { Ok(Some(FieldValue::owned_any(()))) } else { Err(unauthenticated(BAD_TOKEN)) }
        })
    });
    Object::new("Query")
        .field(everybody("authenticate"))
        .field(known.argument(InputValue::new("token", TypeRef::named_nn("String"))))
}

fn authenticate() -> Object {
    let login = Field::new("username_and_password", TypeRef::named_nn("Token"), |ctx| {
        FieldFuture::new(async move {
            let (username, password) = (ctx.args.try_get("username")?, ctx.args.try_get("password")?);
            let token = desk(&ctx)?.login(username.string()?, password.string()?);
            token.map(|token| Some(FieldValue::value(token))).map_err(|error| unauthenticated(&error))
        })
    });
    let text = |name: &str| InputValue::new(name, TypeRef::named_nn("String"));
    Object::new("Authenticate").field(login.argument(text("username")).argument(text("password")))
}

/// An argument as a value; `null` where it is not given.
fn argument(ctx: &ResolverContext<'_>, name: &str) -> Value {
    ctx.args.get(name).map_or(Value::Null, |value| value.as_value().clone())
}

fn session() -> Object {
    let count = Field::new("diamonds_by_query_count", TypeRef::named_nn("Int"), |ctx| {
        FieldFuture::new(async move {
            let desk = desk(&ctx)?;
            let query = Query::read(&argument(&ctx, "query"), desk.config.seed).map_err(Error::new)?;
            Ok(Some(Value::from(desk.count(&query))))
        })
    });
    let page = Field::new("diamonds_by_query", TypeRef::named_nn("DiamondPage"), |ctx| {
        FieldFuture::new(async move {
            let desk = desk(&ctx)?;
            let [query, offset, limit, order] =
                ["query", "offset", "limit", "order"].map(|name| argument(&ctx, name));
            let ask = PageAsk::read(&query, &offset, &limit, &order, desk.config.seed).map_err(Error::new)?;
            Ok(Some(FieldValue::owned_any(Page(desk.page(&ask)))))
        })
    });
    let lookup = Field::new("get_diamond_by_id", TypeRef::named(DIAMOND.name), |ctx| {
        FieldFuture::new(async move {
            let id = ctx.args.try_get("diamond_id")?;
            let stone = desk(&ctx)?.lookup(id.string()?);
            Ok(stone.map(|stone| FieldValue::owned_any(Part(stone, 0))))
        })
    });
    let query = || InputValue::new("query", TypeRef::named("DiamondQuery"));
    Object::new("Session")
        .field(count.argument(query()))
        .field(
            page.argument(query())
                .argument(InputValue::new("offset", TypeRef::named("Int")))
                .argument(InputValue::new("limit", TypeRef::named("Int")))
                .argument(InputValue::new("order", TypeRef::named("DiamondOrder"))),
        )
        .field(lookup.argument(InputValue::new("diamond_id", TypeRef::named_nn("ID"))))
}

fn page() -> Object {
    let total = Field::new("total_count", TypeRef::named_nn("Int"), |ctx| {
        FieldFuture::new(async move {
            // The real thing does this: it is the length of this page, whatever the name says.
            let Page(stones) = ctx.parent_value.try_downcast_ref()?;
            Ok(Some(Value::from(stones.len())))
        })
    });
    let items = Field::new("items", TypeRef::named_nn_list_nn(ITEM.name), |ctx| {
        FieldFuture::new(async move {
            let Page(stones) = ctx.parent_value.try_downcast_ref()?;
            Ok(Some(FieldValue::list(stones.iter().map(|stone| FieldValue::owned_any(Part(*stone, 0))))))
        })
    });
    Object::new("DiamondPage").field(total).field(items)
}

fn inputs(builder: SchemaBuilder) -> SchemaBuilder {
    let range = |name: &str, kind: &'static str| {
        let end = |name: &str| InputValue::new(name, TypeRef::named(kind));
        InputObject::new(name).field(end("from")).field(end("to"))
    };
    let mut query = InputObject::new("DiamondQuery");
    for (name, kind) in QUERY_FIELDS {
        let element = kind.strip_prefix('[').and_then(|rest| rest.strip_suffix("!]"));
        query = query.field(InputValue::new(
            name,
            element.map_or_else(|| TypeRef::named(kind), TypeRef::named_nn_list),
        ));
    }
    let orders = [
        "createdAt",
        "price",
        "discount",
        "color",
        "clarity",
        "cut",
        "size",
        "none",
        "insert",
        "price_per_carat",
        "popular",
    ];
    let order = InputObject::new("DiamondOrder")
        .field(InputValue::new("type", TypeRef::named_nn("DiamondOrderType")))
        .field(InputValue::new("direction", TypeRef::named("OrderDirection")));
    builder
        .register(range("IntRange", TypeRef::INT))
        .register(range("FloatRange", TypeRef::FLOAT))
        .register(range("TimeRange", TypeRef::STRING))
        .register(query)
        .register(order)
        .register(Enum::new("DiamondOrderType").items(orders))
        .register(Enum::new("OrderDirection").items(["ASC", "DESC"]))
        .register(Enum::new("DiamondAvailability").items(["AVAILABLE", "ON_HOLD", "SOLD", "UNAVAILABLE"]))
}
