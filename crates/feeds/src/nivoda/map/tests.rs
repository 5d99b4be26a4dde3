//! Handwritten records and the stones that they map to.

use super::*;
use serde_json::{Value, json};

const ANY: Mapper = Mapper { lab_grown: None };

const RECORD: &str = r#"{
    "id": "OFFER-1",
    "price": 123456,
    "discount": -31.5,
    "diamond": {
        "id": "STONE-1",
        "availability": "AVAILABLE",
        "HoldId": null,
        "NivodaStockId": "N-1",
        "supplierStockId": "SUP-9",
        "image": "https://media.example/1.jpg",
        "video": "https://media.example/1.mp4",
        "eyeClean": "Yes",
        "brown": "NO",
        "green": null,
        "milky": "NO",
        "mine_of_origin": null,
        "delivery_time": { "min_business_days": 5, "max_business_days": 9 },
        "certificate": {
            "id": "C-1",
            "lab": "GIA",
            "certNumber": 6221234567,
            "pdfUrl": "https://media.example/1.pdf",
            "shape": "Oval",
            "carats": 1.25,
            "clarity": "VS1",
            "cut": "ex",
            "polish": "vg",
            "symmetry": "Ex",
            "color": "F",
            "length": "8.10",
            "width": 6.0,
            "depth": 3.71,
            "depthPercentage": "61.8",
            "table": 57,
            "floInt": "FAINT",
            "floCol": "BLUE",
            "girdle": "Thin - Medium",
            "culetSize": "NON",
            "f_color": null,
            "f_intensity": "",
            "f_overtone": null,
            "labgrown": false,
            "treated": false,
            "product_images": [{ "id": "1", "url": "https://media.example/1.jpg", "display_index": 0 }]
        },
        "supplier": { "id": "9", "name": "Acme Gems", "legal_name": "Acme Gems Ltd" }
    }
}"#;

fn record() -> Value {
    serde_json::from_str(RECORD).unwrap()
}

/// Returns the record with one field replaced.
fn with(pointer: &str, value: Value) -> String {
    let mut record = record();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    record.pointer_mut(parent).unwrap()[field] = value;
    record.to_string()
}

fn mapped(pointer: &str, value: Value) -> Diamond {
    ANY.map(&with(pointer, value)).unwrap()
}

fn fault(pointer: &str, value: Value) -> String {
    ANY.map(&with(pointer, value)).unwrap_err().to_string()
}

#[test]
fn every_column_comes_from_its_field() {
    let text = |text: &str| Some(text.to_owned());
    let expected = Diamond {
        stone_id: "STONE-1".into(),
        offer_id: text("OFFER-1"),
        feed_price: 123_456,
        shape: "OVAL".into(),
        points: 125,
        color: text("F"),
        clarity: text("VS1"),
        cut: text("EX"),
        polish: text("VG"),
        symmetry: text("EX"),
        fluorescence: text("FAINT"),
        fancy_color: None,
        fancy_intensity: None,
        fancy_overtone: None,
        lab_grown: false,
        treated: false,
        ratio: Some(1.35),
        availability: Availability::Available,
        raw_availability: text("AVAILABLE"),
        hold_id: None,
        image_url: text("https://media.example/1.jpg"),
        video_url: text("https://media.example/1.mp4"),
        certificate_lab: text("GIA"),
        certificate_number: text("6221234567"),
        certificate_url: text("https://media.example/1.pdf"),
        table_pct: Some(57.0),
        depth_pct: Some(61.8),
        length_mm: Some(8.1),
        width_mm: Some(6.0),
        depth_mm: Some(3.71),
        girdle: text("Thin - Medium"),
        culet_size: text("NON"),
        eye_clean: Some(true),
        supplier_name: text("Acme Gems"),
    };
    assert_eq!(ANY.map(&record().to_string()).unwrap(), expected);
}

#[test]
fn record_without_certificate_image_or_video_is_rejected() {
    for field in ["certificate", "image", "video", "id"] {
        for nothing in [Value::Null, json!("")] {
            if field == "certificate" && !nothing.is_null() {
                continue;
            }
            let fault = fault(&format!("/diamond/{field}"), nothing);
            assert_eq!(fault, format!("`diamond.{field}` is missing"));
        }
    }
    assert_eq!(fault("/diamond", Value::Null), "`diamond` is missing");
    assert_eq!(fault("/diamond/certificate/shape", json!(" ")), "`diamond.certificate.shape` is missing");
}

#[test]
fn price_is_in_cents_as_a_number_or_a_text() {
    for (given, cents) in [(json!(0), 0), (json!("123456"), 123_456), (json!(99.5), 100), (json!(1e3), 1_000)]
    {
        assert_eq!(mapped("/price", given).feed_price, cents);
    }
    assert_eq!(fault("/price", Value::Null), "`price` is missing");
    assert_eq!(fault("/price", json!("")), "`price` is missing");
    assert_eq!(fault("/price", json!("call us")), "`price` is `call us`, which is not a price in cents");
    for odd in [json!(-1), json!(1e18), json!([1]), json!(true)] {
        assert!(fault("/price", odd).starts_with("`price` is `"));
    }
}

#[test]
fn carats_become_points_half_up() {
    for (given, points) in [(json!("1.005"), 101), (json!(1.005), 101), (json!(0.4), 40), (json!(2), 200)] {
        assert_eq!(mapped("/diamond/certificate/carats", given).points, points);
    }
    let field = "/diamond/certificate/carats";
    assert_eq!(fault(field, Value::Null), "`diamond.certificate.carats` is missing");
    assert_eq!(
        fault(field, json!(0)),
        "`diamond.certificate.carats` is `0`, which is not a weight in carats"
    );
    assert!(fault(field, json!("10000")).contains("not a weight"));
}

#[test]
fn availability_spellings_are_normalised() {
    for (given, expected) in [
        (json!("AVAILABLE"), Availability::Available),
        (json!("Available on request"), Availability::Available),
        (json!("ON_HOLD"), Availability::OnHold),
        (json!("Hold"), Availability::OnHold),
        (json!("SOLD"), Availability::Sold),
        (json!("UNAVAILABLE"), Availability::Unavailable),
        (json!("Not available"), Availability::Unavailable),
        (json!("memo"), Availability::Unavailable),
        (Value::Null, Availability::Unavailable),
    ] {
        let stone = mapped("/diamond/availability", given.clone());
        assert_eq!(stone.availability, expected, "{given}");
        assert_eq!(stone.raw_availability.as_deref(), given.as_str());
    }
}

#[test]
fn fancy_colour_sets_the_colour_to_fancy() {
    for (color, fancy, expected) in [
        (json!("F"), json!("GREY"), (Some("Fancy"), Some("Gray"))),
        (Value::Null, json!("ORANGE BROWN"), (Some("Fancy"), Some("Brown-Orange"))),
        (json!("F"), json!("EVEN"), (Some("F"), None)),
        (json!("FANCY"), json!("U-V"), (Some("Fancy"), Some("Unknown"))),
        (json!("Fancy"), Value::Null, (Some("Fancy"), Some("Unknown"))),
        (Value::Null, Value::Null, (None, None)),
    ] {
        let mut record = record();
        record["diamond"]["certificate"]["color"] = color;
        record["diamond"]["certificate"]["f_color"] = fancy;
        let stone = ANY.map(&record.to_string()).unwrap();
        assert_eq!((stone.color.as_deref(), stone.fancy_color.as_deref()), expected);
    }
}

#[test]
fn lab_grown_setting_overrides_the_record() {
    let grown = with("/diamond/certificate/labgrown", json!(true));
    let lab_grown = |lab_grown: Option<bool>| Mapper { lab_grown }.map(&grown).unwrap().lab_grown;
    assert_eq!([None, Some(false), Some(true)].map(lab_grown), [true, false, true]);
    assert!(!mapped("/diamond/certificate/labgrown", Value::Null).lab_grown);
}

#[test]
fn lab_grown_setting_is_part_of_the_mapper_version() {
    let versions = [None, Some(false), Some(true)].map(|lab_grown| Mapper { lab_grown }.version());
    assert_eq!(versions, [4, 5, 6]);
}

#[test]
fn ratio_is_rounded_to_three_decimals() {
    for (length, width, expected) in [
        (json!("6.51"), json!(6.47), Some(1.006)),
        (json!(2), json!(3), Some(0.667)),
        (json!(2), json!(0), None),
        (json!("n/a"), json!(1), None),
        (json!("NaN"), json!(1), None),
        (json!(1), Value::Null, None),
    ] {
        let mut record = record();
        record["diamond"]["certificate"]["length"] = length;
        record["diamond"]["certificate"]["width"] = width;
        assert_eq!(ANY.map(&record.to_string()).unwrap().ratio, expected);
    }
}

#[test]
fn malformed_record_error_names_the_field() {
    for (record, words) in [
        ("7", "an offer: an object with `id`, `price` and `diamond`"),
        (r#"{"diamond":7}"#, "an object in `diamond`"),
        (r#"{"diamond":{"certificate":"x"}}"#, "an object in `diamond.certificate`"),
        ("{", "EOF"),
    ] {
        let fault = ANY.map(record).unwrap_err().to_string();
        assert!(fault.starts_with("invalid record: ") && fault.contains(words), "{fault}");
    }
}

#[test]
fn unknown_and_missing_optional_fields_are_ignored() {
    let mut record = record();
    record["more"] = json!({ "deep": [1, { "x": null }] });
    record["diamond"].as_object_mut().unwrap().remove("supplier");
    record["diamond"]["certificate"].as_object_mut().unwrap().remove("girdle");
    let stone = ANY.map(&record.to_string()).unwrap();
    assert_eq!((stone.supplier_name, stone.girdle), (None, None));
}
