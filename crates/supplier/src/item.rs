//! The fields of an item, once: the schema is built from these tables, and so are the fast answers.
//!
//! A scalar field is a function that writes its JSON. The general path reads that JSON back into a value.

use crate::out::Out;
use crate::random::below32;
use crate::stone::{Presence, Stone};

/// Writes the JSON of a scalar. The number says which element of a list it belongs to.
pub(crate) type Write = fn(&Stone, u8, &mut Out);

/// An object type of the schema.
pub(crate) struct Shape {
    /// Its name in the schema.
    pub(crate) name: &'static str,
    /// Its fields.
    pub(crate) fields: &'static [Field],
}

/// A field of an object type.
pub(crate) struct Field {
    /// Its name in the schema.
    pub(crate) name: &'static str,
    /// What it holds.
    pub(crate) kind: Kind,
}

/// What a field holds.
pub(crate) enum Kind {
    /// A scalar: the name of its type, and how it is written.
    Scalar(&'static str, Write),
    /// An object, or null where the function says that there is none.
    Object(&'static Shape, fn(&Stone) -> bool),
    /// A list of objects, as long as the function says.
    List(&'static Shape, fn(&Stone) -> u8),
}

impl Shape {
    /// The field of that name.
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

const fn text(name: &'static str, write: Write) -> Field {
    Field { name, kind: Kind::Scalar("String", write) }
}

const fn int(name: &'static str, write: Write) -> Field {
    Field { name, kind: Kind::Scalar("Int", write) }
}

const fn float(name: &'static str, write: Write) -> Field {
    Field { name, kind: Kind::Scalar("Float", write) }
}

const fn boolean(name: &'static str, write: Write) -> Field {
    Field { name, kind: Kind::Scalar("Boolean", write) }
}

const fn id(write: Write) -> Field {
    Field { name: "id", kind: Kind::Scalar("ID", write) }
}

const fn object(name: &'static str, shape: &'static Shape) -> Field {
    Field { name, kind: Kind::Object(shape, |_| true) }
}

/// An offer: what a page lists.
pub(crate) static ITEM: Shape = Shape {
    name: "DiamondOffer",
    fields: &[
        id(|stone, _, out| {
            if stone.without_id {
                return out.null();
            }
            out.raw("\"DIAMOND/").uuid(stone.id()).raw("\"");
        }),
        int("price", price),
        float("discount", |stone, _, out| {
            out.raw("-").hundredths(1 + below32(stone.varying(1), 6_000));
        }),
        int("diamond_price", price),
        int("markup_price", price),
        float("markup_discount", |_, _, out| out.null()),
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
        text("availability", |stone, _, out| out.text(stone.state.presence.as_str())),
        text("HoldId", |stone, _, out| match stone.state.presence {
            Presence::OnHold => uuid((stone.varying(2), stone.varying(3)), out),
            Presence::Available | Presence::Sold | Presence::Gone => out.null(),
        }),
        text("NivodaStockId", |stone, _, out| {
            out.raw("\"N").int(10_000_000 + u64::from(stone.number)).raw("\"");
        }),
        text("supplierStockId", stock_id),
        text("image", |stone, _, out| {
            if stone.state.traits.image() {
                media(stone, 0, "500", "jpg", out);
            } else {
                out.null();
            }
        }),
        text("video", |stone, _, out| {
            if stone.state.traits.v360() {
                media(stone, 0, "video", "mp4", out);
            } else {
                out.null();
            }
        }),
        text("eyeClean", |stone, _, out| match stone.varying(5) % 3 {
            0 => out.null(),
            1 => out.text("Yes"),
            _ => out.text("No"),
        }),
        text("brown", |stone, _, out| tinge(stone.fixed(1), out)),
        text("green", |stone, _, out| tinge(stone.fixed(2), out)),
        text("blue", |stone, _, out| tinge(stone.fixed(3), out)),
        text("gray", |stone, _, out| tinge(stone.fixed(4), out)),
        text("milky", |stone, _, out| tinge(stone.varying(6), out)),
        text("bowtie", |stone, _, out| tinge(stone.fixed(5), out)),
        text("mine_of_origin", |stone, _, out| {
            if stone.padding > 0 {
                return padding(stone, out);
            }
            pick(stone.fixed(6), &["Botswana", "Canada", "South Africa", "Namibia"], out);
        }),
        text("supplier_video_link", |stone, _, out| media(stone, 0, "supplier", "html", out)),
        int("final_price", price),
        int("return_window", |stone, _, out| {
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
        int("min_business_days", |stone, _, out| {
            out.int(3 + stone.varying(7) % 5);
        }),
        int("max_business_days", |stone, _, out| {
            out.int(8 + stone.varying(7) % 7);
        }),
        boolean("express_timeline_applicable", |stone, _, out| out.boolean(stone.fixed(8) % 4 == 0)),
    ],
};

static V360: Shape = Shape {
    name: "V360",
    fields: &[
        id(|stone, _, out| uuid((stone.fixed(9), stone.fixed(10)), out)),
        text("url", |stone, _, out| media(stone, 0, "v360", "json", out)),
    ],
};

static SUPPLIER: Shape = Shape {
    name: "Supplier",
    fields: &[
        id(|stone, _, out| {
            let supplier = crate::random::mix(stone.fixed(11) % 40);
            uuid((supplier, crate::random::mix(supplier)), out);
        }),
        text("name", |stone, _, out| {
            out.raw("\"Diamond House ").int(1 + stone.fixed(11) % 40).raw("\"");
        }),
        text("legal_name", |stone, _, out| {
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
        text("url", |stone, index, out| media(stone, index, "certificate", "jpg", out)),
        int("display_index", |_, index, out| {
            out.int(u64::from(index));
        }),
    ],
};

/// The certificate of a stone.
pub(crate) static CERTIFICATE: Shape = Shape {
    name: "Certificate",
    fields: &[
        id(|stone, _, out| uuid((stone.fixed(12), stone.fixed(13)), out)),
        text("lab", |stone, _, out| pick(stone.fixed(14), &["GIA", "GIA", "GIA", "IGI", "HRD", "AGS"], out)),
        text("certNumber", |stone, _, out| {
            out.raw("\"").int(cert_number(stone)).raw("\"");
        }),
        text("pdfUrl", |stone, _, out| {
            out.raw("\"https://certificates.example.com/pdf/").int(cert_number(stone)).raw(".pdf\"");
        }),
        text("shape", |stone, _, out| out.text(stone.state.traits.shape_name())),
        text("fullShape", |stone, _, out| out.text(stone.state.traits.shape_name())),
        float("carats", |stone, _, out| out.hundredths(stone.state.traits.carats())),
        text("clarity", |stone, _, out| {
            pick(stone.fixed(16), &["IF", "VVS1", "VVS2", "VS1", "VS1", "VS2", "SI1", "SI2", "I1"], out);
        }),
        text("cut", |stone, _, out| {
            if stone.state.traits.fair() {
                pick(stone.fixed(17), &["F", "P"], out);
            } else {
                pick(stone.fixed(17), &["EX", "EX", "ID", "VG", "G"], out);
            }
        }),
        text("polish", |stone, _, out| pick(stone.fixed(18), &["EX", "EX", "VG", "G"], out)),
        text("symmetry", |stone, _, out| pick(stone.fixed(19), &["EX", "VG", "VG", "G"], out)),
        text("color", |stone, _, out| {
            if stone.state.traits.fancy() {
                out.text("Fancy");
            } else {
                pick(stone.fixed(20), &["D", "E", "F", "G", "H", "I", "J", "K"], out);
            }
        }),
        float("length", |stone, _, out| out.hundredths(length(stone))),
        float("width", |stone, _, out| {
            let part = if stone.state.traits.shape() == 0 { 98 } else { 60 + below32(stone.fixed(21), 39) };
            out.hundredths(length(stone) * part / 100);
        }),
        float("depth", |stone, _, out| {
            out.hundredths(length(stone) * (5_600 + below32(stone.fixed(22), 1_200)) / 10_000);
        }),
        float("depthPercentage", |stone, _, out| out.hundredths(5_600 + below32(stone.fixed(22), 1_200))),
        float("table", |stone, _, out| out.hundredths(5_200 + 50 * below32(stone.varying(8), 28))),
        float("crownAngle", |stone, _, out| out.hundredths(3_300 + 10 * below32(stone.fixed(24), 30))),
        float("crownHeight", |stone, _, out| out.hundredths(1_350 + 10 * below32(stone.fixed(25), 30))),
        float("pavAngle", |stone, _, out| out.hundredths(4_060 + 10 * below32(stone.fixed(26), 20))),
        float("pavHeight", |stone, _, out| out.hundredths(4_250 + 10 * below32(stone.fixed(27), 20))),
        float("pavDepth", |stone, _, out| out.hundredths(4_250 + 10 * below32(stone.fixed(27), 20))),
        text("floInt", |stone, _, out| {
            pick(stone.fixed(28), &["NON", "NON", "FNT", "MED", "STG", "VST"], out);
        }),
        text("floCol", |stone, _, out| match stone.fixed(28) % 6 {
            0 | 1 => out.null(),
            _ => out.text("Blue"),
        }),
        text("girdle", |stone, _, out| {
            pick(
                stone.fixed(29),
                &["Medium", "Thin - Medium", "Slightly Thick", "Medium - Slightly Thick"],
                out,
            );
        }),
        text("culetSize", |stone, _, out| {
            pick(stone.fixed(30), &["None", "None", "Very Small", "Pointed"], out);
        }),
        text("f_color", |stone, _, out| {
            if stone.state.traits.fancy() {
                pick(stone.fixed(31), &["Yellow", "Pink", "Blue", "GREY", "Orange Brown"], out);
            } else {
                out.null();
            }
        }),
        text("f_intensity", |stone, _, out| {
            if stone.state.traits.fancy() {
                pick(stone.fixed(15), &["Fancy", "Fancy Light", "Fancy Intense", "Fancy Vivid"], out);
            } else {
                out.null();
            }
        }),
        text("f_overtone", |stone, _, out| {
            if stone.state.traits.fancy() {
                pick(stone.fixed(23), &["EVEN", "Greenish", "Brownish", "None"], out);
            } else {
                out.null();
            }
        }),
        boolean("labgrown", |stone, _, out| out.boolean(stone.state.traits.labgrown())),
        text("labgrown_type", |stone, _, out| {
            if stone.state.traits.labgrown() {
                pick(stone.fixed(3), &["CVD", "HPHT"], out);
            } else {
                out.null();
            }
        }),
        boolean("treated", |stone, _, out| out.boolean(stone.fixed(14) % 50 == 0)),
        boolean("verified", |_, _, out| out.boolean(true)),
        text("image", |stone, _, out| media(stone, 0, "certificate", "jpg", out)),
        text("video", |stone, _, out| media(stone, 0, "certificate", "mp4", out)),
        Field { name: "product_images", kind: Kind::List(&IMAGE, image_count) },
        Field { name: "product_videos", kind: Kind::List(&IMAGE, |_| 0) },
    ],
};

fn price(stone: &Stone, _: u8, out: &mut Out) {
    out.int(u64::from(stone.state.price));
}

fn stock_id(stone: &Stone, _: u8, out: &mut Out) {
    out.raw("\"SUP-").hex(stone.varying(4), 10);
    // What a database that keeps texts cannot take, and JSON can say.
    if stone.state.has_nul {
        out.raw("\\u0000");
    }
    out.raw("\"");
}

/// A text of so many letters that hardly any compression makes shorter.
fn padding(stone: &Stone, out: &mut Out) {
    out.raw("\"");
    for part in 0..u64::from(stone.padding / 16) {
        out.hex(stone.fixed(1_000 + part), 16);
    }
    out.raw("\"");
}

fn image_count(stone: &Stone) -> u8 {
    // A stone has one picture or two.
    u8::from(stone.state.traits.image()) + u8::from(stone.fixed(9).is_multiple_of(3))
}

fn uuid(halves: (u64, u64), out: &mut Out) {
    out.raw("\"").uuid(halves).raw("\"");
}

/// The address of a picture or film, which is another one after a change of the media.
fn media(stone: &Stone, index: u8, kind: &str, ending: &str, out: &mut Out) {
    let (high, low) = stone.id();
    out.raw("\"https://media.example.com/").raw(kind).raw("/").uuid((high, low)).raw("/");
    out.int(u64::from(index)).raw("-v").int(u64::from(stone.state.media)).raw(".").raw(ending).raw("\"");
}

fn tinge(number: u64, out: &mut Out) {
    match number % 8 {
        0 => out.null(),
        1 => out.text("Faint"),
        _ => out.text("None"),
    }
}

fn pick(number: u64, words: &[&str], out: &mut Out) {
    let place = below32(number, u32::try_from(words.len()).unwrap_or(1));
    out.text(words[place as usize]);
}

fn cert_number(stone: &Stone) -> u64 {
    1_000_000_000 + u64::from(below32(stone.fixed(15), 4_000_000)) * 1_000 + u64::from(stone.number % 1_000)
}

/// Length in hundredths of a millimetre: a stone of one carat is about 6.5 mm.
fn length(stone: &Stone) -> u32 {
    stone.state.traits.carats().isqrt() * 65 + below32(stone.fixed(13), 60)
}
