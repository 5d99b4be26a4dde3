//! The items of the REST API: their ids and fields.

use crate::item::{Field, Kind, Shape, Write, padding};
use crate::random::below32;
use crate::stone::{Availability, Stone};
use chrono::{Days, NaiveDate};

/// Approximate size of an item as JSON.
pub(super) const BYTES: usize = 900;

/// Prefix of the ids. The rest is the number of the stone, so that ids are ordered like the items.
const ID_PREFIX: &str = "itm_";
const ID_DIGITS: u32 = 10;

/// 2025-01-01T00:00:00Z in microseconds since 1970. All items were created in the year after it.
const CREATED_SINCE: i64 = 1_735_689_600_000_000;

const MATERIALS: [&str; 8] = ["Oak", "Walnut", "Ash", "Brass", "Linen", "Steel", "Rattan", "Glass"];
const PRODUCTS: [&str; 8] = ["chair", "desk", "lamp", "shelf", "mirror", "café table", "bench", "stool"];
const BRANDS: [&str; 6] = ["Nordlys", "Atelier Mô", "Holm & Søn", "Kettle", "Five Oaks", "Lumen"];
const COLOURS: [&str; 6] = ["black", "white", "natural", "red", "sage", "ochre"];
const TAGS: [&str; 6] = ["new", "sale", "outdoor", "handmade", "bulky", "gift"];
/// Code, city and country of each warehouse.
const WAREHOUSES: [[&str; 3]; 4] = [
    ["HAM-1", "Hamburg", "DE"],
    ["LYS-2", "Lyon", "FR"],
    ["GDN-1", "Gdańsk", "PL"],
    ["ODE-3", "Odense", "DK"],
];

const fn scalar(name: &'static str, write: Write) -> Field {
    Field { name, kind: Kind::Scalar(write) }
}

pub(crate) static ITEM: Shape = Shape {
    name: "Item",
    fields: &[
        scalar("id", |stone, _, out| {
            if stone.without_id {
                return out.null();
            }
            let is_second = has_spaced_id(stone);
            out.raw("\"").raw(ID_PREFIX).padded(stone.number - u32::from(is_second), ID_DIGITS);
            out.raw(if is_second { " \"" } else { "\"" });
        }),
        scalar("sku", |stone, _, out| {
            out.raw("\"SKU-").hex(stone.fixed(40), 8).raw("\"");
        }),
        scalar("name", |stone, _, out| {
            out.raw("\"").raw(word(stone.fixed(41), &MATERIALS)).raw(" ");
            out.raw(word(stone.fixed(42), &PRODUCTS)).raw("\"");
        }),
        scalar("status", |stone, _, out| {
            out.text(match stone.state.availability {
                Availability::Available => "active",
                Availability::OnHold | Availability::Sold => "sold",
                Availability::Gone => "removed",
            });
        }),
        scalar("price", |stone, _, out| {
            out.money(stone.state.price);
        }),
        scalar("currency", |_, _, out| out.text("USD")),
        scalar("brand", |stone, _, out| {
            if stone.state.uncertified { out.null() } else { out.text(word(stone.fixed(43), &BRANDS)) }
        }),
        scalar("quantity", |stone, _, out| {
            out.int(u64::from(below32(stone.varying(40), 500)));
        }),
        scalar("weight_kg", |stone, _, out| out.hundredths(20 + below32(stone.fixed(44), 6_000))),
        scalar("is_fragile", |stone, _, out| out.boolean(stone.fixed(45).is_multiple_of(4))),
        scalar("tags", |stone, _, out| {
            out.raw("[");
            for index in 0..stone.fixed(46) % 4 {
                out.raw(if index == 0 { "" } else { "," }).text(word(stone.fixed(47 + index), &TAGS));
            }
            out.raw("]");
        }),
        Field { name: "dimensions", kind: Kind::Object(&DIMENSIONS, |_| true) },
        Field { name: "warehouse", kind: Kind::Object(&WAREHOUSE, |_| true) },
        Field {
            name: "variants",
            kind: Kind::List(&VARIANT, |stone| 1 + u8::from(stone.fixed(54) % 3 == 0)),
        },
        scalar("image_url", |stone, _, out| {
            if !stone.state.traits.image() {
                return out.null();
            }
            out.raw("\"https://cdn.example.com/items/").hex(stone.fixed(40), 8).raw("-v");
            out.int(u64::from(stone.state.media)).raw(".webp\"");
        }),
        scalar("notes", |stone, _, out| match (stone.state.has_nul, stone.padding) {
            // Valid in JSON, but PostgreSQL cannot store it in a text column.
            (true, _) => {
                out.raw("\"see \\u0000\"");
            }
            (false, 0) => out.null(),
            (false, _) => padding(stone, out),
        }),
        scalar("released_on", |stone, _, out| {
            let first = NaiveDate::default() + Days::new(18_000);
            out.raw("\"").date(first + Days::new(stone.fixed(55) % 2_000)).raw("\"");
        }),
        scalar("created_at", |stone, _, out| {
            let age = i64::from(below32(stone.fixed(56), 365 * 24 * 60 * 60));
            out.raw("\"").time(CREATED_SINCE + age * 1_000_000).raw("\"");
        }),
        scalar("updated_at", |stone, _, out| {
            out.raw("\"").time(stone.state.updated).raw("\"");
        }),
    ],
};

static DIMENSIONS: Shape = Shape {
    name: "Dimensions",
    fields: &[
        scalar("width_mm", |stone, _, out| {
            out.int(u64::from(100 + below32(stone.fixed(51), 2_000)));
        }),
        scalar("height_mm", |stone, _, out| {
            out.int(u64::from(100 + below32(stone.fixed(52), 2_000)));
        }),
        scalar("depth_mm", |stone, _, out| {
            out.int(u64::from(100 + below32(stone.fixed(53), 900)));
        }),
    ],
};

static WAREHOUSE: Shape = Shape {
    name: "Warehouse",
    fields: &[
        scalar("code", |stone, _, out| out.text(warehouse(stone)[0])),
        scalar("city", |stone, _, out| out.text(warehouse(stone)[1])),
        scalar("country", |stone, _, out| out.text(warehouse(stone)[2])),
    ],
};

static VARIANT: Shape = Shape {
    name: "Variant",
    fields: &[
        scalar("colour", |stone, index, out| out.text(word(stone.fixed(57 + u64::from(index)), &COLOURS))),
        scalar("barcode", |stone, index, out| {
            let number = 4_000_000_000_000 + stone.fixed(60 + u64::from(index)) % 1_000_000_000_000;
            out.raw("\"").int(number).raw("\"");
        }),
        scalar("stock", |stone, index, out| {
            out.int(u64::from(below32(stone.varying(41 + u64::from(index)), 100)));
        }),
    ],
};

fn warehouse(stone: &Stone) -> &'static [&'static str; 3] {
    &WAREHOUSES[below32(stone.varying(44), 4) as usize]
}

fn word(number: u64, words: &[&'static str]) -> &'static str {
    words[below32(number, u32::try_from(words.len()).unwrap_or(1)) as usize]
}

/// Returns the id of an item.
pub(crate) fn id_text(number: u32) -> String {
    format!("{ID_PREFIX}{number:010}")
}

/// Returns the id of an item in a response.
pub(crate) fn shown_id(stone: &Stone) -> String {
    if has_spaced_id(stone) { format!("{} ", id_text(stone.number - 1)) } else { id_text(stone.number) }
}

/// Whether the item has the id of the item before it plus a space.
const fn has_spaced_id(stone: &Stone) -> bool {
    stone.is_spaced && stone.number % 2 == 1
}

/// Returns the number of the stone with this id of an item.
pub(crate) fn number_of(id: &str) -> Option<u32> {
    if let Some(id) = id.strip_suffix(' ') {
        return number_of(id)?.checked_add(1);
    }
    let digits = id.strip_prefix(ID_PREFIX)?;
    let number = digits.parse().ok()?;
    (id_text(number) == id).then_some(number)
}

/// Returns a GraphQL selection of all fields, in their order.
pub(super) fn selection() -> String {
    let mut text = String::new();
    select(&ITEM, &mut text);
    text
}

fn select(shape: &Shape, text: &mut String) {
    for (index, field) in shape.fields.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { " " });
        text.push_str(field.name);
        match &field.kind {
            Kind::Scalar(_) => {}
            Kind::Object(inner, _) | Kind::List(inner, _) => {
                text.push_str(" { ");
                select(inner, text);
                text.push_str(" }");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_decoded_from_the_id() {
        for number in [0, 7, 1_999_999, u32::MAX] {
            assert_eq!(number_of(&id_text(number)), Some(number));
        }
        assert_eq!(number_of("itm_0000000006 "), Some(7));
        for id in ["", "itm_7", "itm_00000000007", "itm_x", "7", "itm_4294967295 "] {
            assert_eq!(number_of(id), None, "{id}");
        }
        assert!(id_text(99) < id_text(100), "ids are not ordered like the items");
    }

    #[test]
    fn selection_contains_all_fields() {
        let text = selection();
        assert!(text.starts_with("id sku name status price "), "{text}");
        assert!(text.contains("warehouse { code city country } variants { colour barcode stock } image_url"));
    }
}
