-- Differs: a batch is one statement over arrays here, and one statement per row there.
-- A row that was built from exactly this payload, mapper and set of rules stays as it is; a deleted one returns.
INSERT INTO {sync}.diamonds AS d (
    feed, supplier_stone_id, offer_id, shape, carats, color, clarity, cut, polish, symmetry, fluorescence,
    fancy_color, fancy_intensity, fancy_overtone, lab_grown, treated, ratio, availability, raw_availability,
    hold_id, feed_price_cents, price_per_carat_cents, retail_price_cents, markup_ratio, rating, rule_id,
    image_url, video_url, certificate_lab, certificate_number, certificate_url, table_pct, depth_pct, length_mm,
    width_mm, depth_mm, girdle, culet_size, eye_clean, supplier_name, payload_hash, mapper_version,
    rules_version, created_at, updated_at)
SELECT $1, g.id, g.offer, g.shape, g.points / 100.0, g.color, g.clarity, g.cut, g.polish, g.symmetry,
       g.fluorescence, g.fancy_color, g.fancy_intensity, g.fancy_overtone, g.lab_grown, g.treated, g.ratio,
       g.availability, g.raw_availability, g.hold_id, g.feed_price_cents, g.price_per_carat_cents,
       g.retail_price_cents, g.markup / 10000.0, g.rating, g.rule_id, g.image_url, g.video_url,
       g.certificate_lab, g.certificate_number, g.certificate_url, g.table_pct, g.depth_pct, g.length_mm,
       g.width_mm, g.depth_mm, g.girdle, g.culet_size, g.eye_clean, g.supplier_name, g.payload_hash, $2, $3,
       coalesce($4, {now}), coalesce($4, {now})
  FROM unnest($5::text[], $6::text[], $7::text[], $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[],
           $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::boolean[], $19::boolean[],
           $20::real[], $21::text[], $22::text[], $23::text[], $24::bigint[], $25::bigint[], $26::bigint[],
           $27::integer[], $28::integer[], $29::bigint[], $30::text[], $31::text[], $32::text[], $33::text[],
           $34::text[], $35::real[], $36::real[], $37::real[], $38::real[], $39::real[], $40::text[],
           $41::text[], $42::boolean[], $43::text[], $44::bytea[])
    AS g (id, offer, shape, points, color, clarity, cut, polish, symmetry, fluorescence, fancy_color,
          fancy_intensity, fancy_overtone, lab_grown, treated, ratio, availability, raw_availability, hold_id,
          feed_price_cents, price_per_carat_cents, retail_price_cents, markup, rating, rule_id, image_url,
          video_url, certificate_lab, certificate_number, certificate_url, table_pct, depth_pct, length_mm,
          width_mm, depth_mm, girdle, culet_size, eye_clean, supplier_name, payload_hash)
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
