//! The object types of the API and their fields. A scalar field is a function that writes its JSON.

use crate::json_writer::JsonWriter;
use crate::random::below32;
use crate::stone::{Availability, Stone};

/// Writes the JSON of a scalar. The number is the index of the list element that it belongs to.
pub(crate) type Write = fn(&Stone, u8, &mut JsonWriter);

/// An object type of the API.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
}

/// A field of an object type.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

/// Type of a field.
pub(crate) enum Kind {
    Scalar(Write),
    /// An object, or null if the function returns false.
    Object(&'static Shape, fn(&Stone) -> bool),
    /// A list of objects with the length that the function returns.
    List(&'static Shape, fn(&Stone) -> u8),
}

impl Shape {
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

const fn scalar(name: &'static str, write: Write) -> Field {
    Field { name, kind: Kind::Scalar(write) }
}

const fn id(write: Write) -> Field {
    Field { name: "id", kind: Kind::Scalar(write) }
}

const fn object(name: &'static str, shape: &'static Shape) -> Field {
    Field { name, kind: Kind::Object(shape, |_| true) }
}

/// An offer, the item of a page.
pub(crate) static ITEM: Shape = Shape {
    name: "DiamondOffer",
    fields: &[
        id(|stone, _, out| {
            if stone.without_id {
                return out.null();
            }
            out.raw("\"DIAMOND/").uuid(stone.id()).raw("\"");
        }),
        scalar("price", price),
        scalar("discount", |stone, _, out| {
            out.raw("-").hundredths(1 + below32(stone.varying(1), 6_000));
        }),
        scalar("diamond_price", price),
        scalar("markup_price", price),
        scalar("markup_discount", |_, _, out| out.null()),
        object("diamond", &DIAMOND),
    ],
};

/// The stone of an offer.
pub(crate) static DIAMOND: Shape = Shape {
    name: "Diamond",
    fields: &[
        id(|stone, _, out| {
            if stone.without_id {
                out.null();
            } else if stone.is_spaced {
                out.text(&stone.shown_id());
            } else {
                uuid(stone.id(), out);
            }
        }),
        scalar("availability", |stone, _, out| out.text(stone.state.availability.as_str())),
        scalar("HoldId", |stone, _, out| match stone.state.availability {
            Availability::OnHold => uuid((stone.varying(2), stone.varying(3)), out),
            Availability::Available | Availability::Sold | Availability::Gone => out.null(),
        }),
        scalar("NivodaStockId", |stone, _, out| {
            out.raw("\"N").int(10_000_000 + u64::from(stone.number)).raw("\"");
        }),
        scalar("supplierStockId", stock_id),
        scalar("image", |stone, _, out| {
            if stone.state.traits.image() {
                media(stone, 0, "500", "jpg", out);
            } else {
                out.null();
            }
        }),
        scalar("video", |stone, _, out| {
            if stone.state.traits.v360() {
                media(stone, 0, "video", "mp4", out);
            } else {
                out.null();
            }
        }),
        scalar("eyeClean", |stone, _, out| match stone.varying(5) % 3 {
            0 => out.null(),
            1 => out.text("Yes"),
            _ => out.text("No"),
        }),
        scalar("brown", |stone, _, out| tinge(stone.fixed(1), out)),
        scalar("green", |stone, _, out| tinge(stone.fixed(2), out)),
        scalar("blue", |stone, _, out| tinge(stone.fixed(3), out)),
        scalar("gray", |stone, _, out| tinge(stone.fixed(4), out)),
        scalar("milky", |stone, _, out| tinge(stone.varying(6), out)),
        scalar("bowtie", |stone, _, out| tinge(stone.fixed(5), out)),
        scalar("mine_of_origin", |stone, _, out| {
            if stone.padding > 0 {
                return padding(stone, out);
            }
            pick(stone.fixed(6), &["Botswana", "Canada", "South Africa", "Namibia"], out);
        }),
        scalar("supplier_video_link", |stone, _, out| media(stone, 0, "supplier", "html", out)),
        scalar("final_price", price),
        scalar("return_window", |stone, _, out| {
            out.int(7 * (1 + stone.fixed(7) % 4));
        }),
        object("delivery_time", &DELIVERY),
        object("v360", &V360),
        Field { name: "certificate", kind: Kind::Object(&CERTIFICATE, |stone| !stone.state.uncertified) },
        object("supplier", &SUPPLIER),
    ],
};

static DELIVERY: Shape = Shape {
    name: "DeliveryTime",
    fields: &[
        scalar("min_business_days", |stone, _, out| {
            out.int(3 + stone.varying(7) % 5);
        }),
        scalar("max_business_days", |stone, _, out| {
            out.int(8 + stone.varying(7) % 7);
        }),
        scalar("express_timeline_applicable", |stone, _, out| out.boolean(stone.fixed(8) % 4 == 0)),
    ],
};

static V360: Shape = Shape {
    name: "V360",
    fields: &[
        id(|stone, _, out| uuid((stone.fixed(9), stone.fixed(10)), out)),
        scalar("url", |stone, _, out| media(stone, 0, "v360", "json", out)),
    ],
};

static SUPPLIER: Shape = Shape {
    name: "Supplier",
    fields: &[
        id(|stone, _, out| {
            let supplier = crate::random::mix(stone.fixed(11) % 40);
            uuid((supplier, crate::random::mix(supplier)), out);
        }),
        scalar("name", |stone, _, out| {
            out.raw("\"Diamond House ").int(1 + stone.fixed(11) % 40).raw("\"");
        }),
        scalar("legal_name", |stone, _, out| {
            out.raw("\"Diamond House ").int(1 + stone.fixed(11) % 40).raw(" Trading Limited\"");
        }),
    ],
};

static IMAGE: Shape = Shape {
    name: "ProductImage",
    fields: &[
        id(|stone, index, out| {
            let salt = 32 + 4 * u64::from(index) + (u64::from(stone.state.media) << 8);
            uuid((stone.fixed(salt), stone.fixed(salt + 1)), out);
        }),
        scalar("url", |stone, index, out| media(stone, index, "certificate", "jpg", out)),
        scalar("display_index", |_, index, out| {
            out.int(u64::from(index));
        }),
    ],
};

/// The certificate of a stone.
pub(crate) static CERTIFICATE: Shape = Shape {
    name: "Certificate",
    fields: &[
        id(|stone, _, out| uuid((stone.fixed(12), stone.fixed(13)), out)),
        scalar("lab", |stone, _, out| {
            pick(stone.fixed(14), &["GIA", "GIA", "GIA", "IGI", "HRD", "AGS"], out);
        }),
        scalar("certNumber", |stone, _, out| {
            out.raw("\"").int(cert_number(stone)).raw("\"");
        }),
        scalar("pdfUrl", |stone, _, out| {
            out.raw("\"https://certificates.example.com/pdf/").int(cert_number(stone)).raw(".pdf\"");
        }),
        scalar("shape", |stone, _, out| out.text(stone.state.traits.shape_name())),
        scalar("fullShape", |stone, _, out| out.text(stone.state.traits.shape_name())),
        scalar("carats", |stone, _, out| out.hundredths(stone.state.traits.carats())),
        scalar("clarity", |stone, _, out| {
            pick(stone.fixed(16), &["IF", "VVS1", "VVS2", "VS1", "VS1", "VS2", "SI1", "SI2", "I1"], out);
        }),
        scalar("cut", |stone, _, out| {
            if stone.state.traits.fair() {
                pick(stone.fixed(17), &["F", "P"], out);
            } else {
                pick(stone.fixed(17), &["EX", "EX", "ID", "VG", "G"], out);
            }
        }),
        scalar("polish", |stone, _, out| pick(stone.fixed(18), &["EX", "EX", "VG", "G"], out)),
        scalar("symmetry", |stone, _, out| pick(stone.fixed(19), &["EX", "VG", "VG", "G"], out)),
        scalar("color", |stone, _, out| {
            if stone.state.traits.fancy() {
                out.text("Fancy");
            } else {
                pick(stone.fixed(20), &["D", "E", "F", "G", "H", "I", "J", "K"], out);
            }
        }),
        scalar("length", |stone, _, out| out.hundredths(length(stone))),
        scalar("width", |stone, _, out| {
            let part = if stone.state.traits.shape() == 0 { 98 } else { 60 + below32(stone.fixed(21), 39) };
            out.hundredths(length(stone) * part / 100);
        }),
        scalar("depth", |stone, _, out| {
            out.hundredths(length(stone) * (5_600 + below32(stone.fixed(22), 1_200)) / 10_000);
        }),
        scalar("depthPercentage", |stone, _, out| out.hundredths(5_600 + below32(stone.fixed(22), 1_200))),
        scalar("table", |stone, _, out| out.hundredths(5_200 + 50 * below32(stone.varying(8), 28))),
        scalar("crownAngle", |stone, _, out| out.hundredths(3_300 + 10 * below32(stone.fixed(24), 30))),
        scalar("crownHeight", |stone, _, out| out.hundredths(1_350 + 10 * below32(stone.fixed(25), 30))),
        scalar("pavAngle", |stone, _, out| out.hundredths(4_060 + 10 * below32(stone.fixed(26), 20))),
        scalar("pavHeight", |stone, _, out| out.hundredths(4_250 + 10 * below32(stone.fixed(27), 20))),
        scalar("pavDepth", |stone, _, out| out.hundredths(4_250 + 10 * below32(stone.fixed(27), 20))),
        scalar("floInt", |stone, _, out| {
            pick(stone.fixed(28), &["NON", "NON", "FNT", "MED", "STG", "VST"], out);
        }),
        scalar("floCol", |stone, _, out| match stone.fixed(28) % 6 {
            0 | 1 => out.null(),
            _ => out.text("Blue"),
        }),
        scalar("girdle", |stone, _, out| {
            pick(
                stone.fixed(29),
                &["Medium", "Thin - Medium", "Slightly Thick", "Medium - Slightly Thick"],
                out,
            );
        }),
        scalar("culetSize", |stone, _, out| {
            pick(stone.fixed(30), &["None", "None", "Very Small", "Pointed"], out);
        }),
        scalar("f_color", |stone, _, out| {
            if stone.state.traits.fancy() {
                pick(stone.fixed(31), &["Yellow", "Pink", "Blue", "GREY", "Orange Brown"], out);
            } else {
                out.null();
            }
        }),
        scalar("f_intensity", |stone, _, out| {
            if stone.state.traits.fancy() {
                pick(stone.fixed(15), &["Fancy", "Fancy Light", "Fancy Intense", "Fancy Vivid"], out);
            } else {
                out.null();
            }
        }),
        scalar("f_overtone", |stone, _, out| {
            if stone.state.traits.fancy() {
                pick(stone.fixed(23), &["EVEN", "Greenish", "Brownish", "None"], out);
            } else {
                out.null();
            }
        }),
        scalar("labgrown", |stone, _, out| out.boolean(stone.state.traits.labgrown())),
        scalar("labgrown_type", |stone, _, out| {
            if stone.state.traits.labgrown() {
                pick(stone.fixed(3), &["CVD", "HPHT"], out);
            } else {
                out.null();
            }
        }),
        scalar("treated", |stone, _, out| out.boolean(stone.fixed(14) % 50 == 0)),
        scalar("verified", |_, _, out| out.boolean(true)),
        scalar("image", |stone, _, out| media(stone, 0, "certificate", "jpg", out)),
        scalar("video", |stone, _, out| media(stone, 0, "certificate", "mp4", out)),
        Field { name: "product_images", kind: Kind::List(&IMAGE, image_count) },
        Field { name: "product_videos", kind: Kind::List(&IMAGE, |_| 0) },
    ],
};

fn price(stone: &Stone, _: u8, out: &mut JsonWriter) {
    out.int(u64::from(stone.state.price));
}

fn stock_id(stone: &Stone, _: u8, out: &mut JsonWriter) {
    out.raw("\"SUP-").hex(stone.varying(4), 10);
    // Valid in JSON, but PostgreSQL cannot store it in a text column.
    if stone.state.has_nul {
        out.raw("\\u0000");
    }
    out.raw("\"");
}

/// Writes a text that compresses badly.
pub(crate) fn padding(stone: &Stone, out: &mut JsonWriter) {
    out.raw("\"");
    for part in 0..u64::from(stone.padding / 16) {
        out.hex(stone.fixed(1_000 + part), 16);
    }
    out.raw("\"");
}

fn image_count(stone: &Stone) -> u8 {
    // A stone has up to two pictures.
    u8::from(stone.state.traits.image()) + u8::from(stone.fixed(9).is_multiple_of(3))
}

fn uuid(halves: (u64, u64), out: &mut JsonWriter) {
    out.raw("\"").uuid(halves).raw("\"");
}

/// Writes the URL of a picture or video, which changes with the media version.
fn media(stone: &Stone, index: u8, kind: &str, ending: &str, out: &mut JsonWriter) {
    let (high, low) = stone.id();
    out.raw("\"https://media.example.com/").raw(kind).raw("/").uuid((high, low)).raw("/");
    out.int(u64::from(index)).raw("-v").int(u64::from(stone.state.media)).raw(".").raw(ending).raw("\"");
}

fn tinge(number: u64, out: &mut JsonWriter) {
    match number % 8 {
        0 => out.null(),
        1 => out.text("Faint"),
        _ => out.text("None"),
    }
}

fn pick(number: u64, words: &[&str], out: &mut JsonWriter) {
    let index = below32(number, u32::try_from(words.len()).unwrap_or(1));
    out.text(words[index as usize]);
}

fn cert_number(stone: &Stone) -> u64 {
    1_000_000_000 + u64::from(below32(stone.fixed(15), 4_000_000)) * 1_000 + u64::from(stone.number % 1_000)
}

/// Length in hundredths of a millimetre; a stone of one carat has about 6.5 mm.
fn length(stone: &Stone) -> u32 {
    stone.state.traits.carats().isqrt() * 65 + below32(stone.fixed(13), 60)
}
