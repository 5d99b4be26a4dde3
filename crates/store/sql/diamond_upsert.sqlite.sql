-- Differs: a batch is one statement over arrays there, and one statement per row here.
-- A row that was built from exactly this payload, mapper and set of rules stays as it is; a deleted one returns.
INSERT INTO {sync}.diamonds AS d (
    feed, supplier_stone_id, offer_id, shape, carats, color, clarity, cut, polish, symmetry, fluorescence,
    fancy_color, fancy_intensity, fancy_overtone, lab_grown, treated, ratio, availability, raw_availability,
    hold_id, feed_price_cents, price_per_carat_cents, retail_price_cents, markup_ratio, rating, rule_id,
    image_url, video_url, certificate_lab, certificate_number, certificate_url, table_pct, depth_pct, length_mm,
    width_mm, depth_mm, girdle, culet_size, eye_clean, supplier_name, payload_hash, mapper_version,
    rules_version, created_at, updated_at)
VALUES ($1, $5, $6, $7, $8 / 100.0, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
    $25, $26, $27 / 10000.0, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43,
    $44, $2, $3, $4, $4)
ON CONFLICT (feed, supplier_stone_id) DO UPDATE SET
    offer_id = excluded.offer_id, shape = excluded.shape, carats = excluded.carats, color = excluded.color,
    clarity = excluded.clarity, cut = excluded.cut, polish = excluded.polish, symmetry = excluded.symmetry,
    fluorescence = excluded.fluorescence, fancy_color = excluded.fancy_color,
    fancy_intensity = excluded.fancy_intensity, fancy_overtone = excluded.fancy_overtone,
    lab_grown = excluded.lab_grown, treated = excluded.treated, ratio = excluded.ratio,
    availability = excluded.availability, raw_availability = excluded.raw_availability,
    hold_id = excluded.hold_id, feed_price_cents = excluded.feed_price_cents,
    price_per_carat_cents = excluded.price_per_carat_cents, retail_price_cents = excluded.retail_price_cents,
    markup_ratio = excluded.markup_ratio, rating = excluded.rating, rule_id = excluded.rule_id,
    image_url = excluded.image_url, video_url = excluded.video_url, certificate_lab = excluded.certificate_lab,
    certificate_number = excluded.certificate_number, certificate_url = excluded.certificate_url,
    table_pct = excluded.table_pct, depth_pct = excluded.depth_pct, length_mm = excluded.length_mm,
    width_mm = excluded.width_mm, depth_mm = excluded.depth_mm, girdle = excluded.girdle,
    culet_size = excluded.culet_size, eye_clean = excluded.eye_clean, supplier_name = excluded.supplier_name,
    payload_hash = excluded.payload_hash, mapper_version = excluded.mapper_version,
    rules_version = excluded.rules_version, updated_at = excluded.updated_at, status = 'active',
    deleted_at = NULL
 WHERE d.payload_hash <> excluded.payload_hash OR d.mapper_version <> excluded.mapper_version
    OR d.rules_version <> excluded.rules_version OR d.status <> 'active'
