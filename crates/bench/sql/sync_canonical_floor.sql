-- Minimal consolidation: one statement over all rows, without hashes, rules or rejected rows.
INSERT INTO diamonds (feed, supplier_stone_id, offer_id, shape, carats, color, clarity, cut, polish, symmetry,
    fluorescence, fancy_color, fancy_intensity, fancy_overtone, lab_grown, treated, ratio, availability,
    raw_availability, hold_id, feed_price_cents, price_per_carat_cents, retail_price_cents, markup_ratio, rating,
    rule_id, image_url, video_url, certificate_lab, certificate_number, certificate_url, table_pct, depth_pct,
    length_mm, width_mm, depth_mm, girdle, culet_size, eye_clean, supplier_name, payload_hash, mapper_version,
    rules_version, created_at, updated_at)
SELECT r.feed, r.stone, r.payload ->> 'id', c ->> 'shape', (c ->> 'carats')::numeric, c ->> 'color', c ->> 'clarity',
       c ->> 'cut', c ->> 'polish', c ->> 'symmetry', c ->> 'floInt', c ->> 'f_color', c ->> 'f_intensity',
       c ->> 'f_overtone', (c ->> 'labgrown')::boolean, coalesce((c ->> 'treated')::boolean, false),
       ((c ->> 'length')::real / nullif((c ->> 'width')::real, 0)), lower(d ->> 'availability'), d ->> 'availability',
       d ->> 'HoldId', (r.payload ->> 'price')::bigint,
       round((r.payload ->> 'price')::numeric / (c ->> 'carats')::numeric)::bigint,
       round((r.payload ->> 'price')::numeric * 1.15)::bigint, 1.15, 5, 1, d ->> 'image', d ->> 'video', c ->> 'lab',
       c ->> 'certNumber', c ->> 'pdfUrl', (c ->> 'table')::real, (c ->> 'depthPercentage')::real,
       (c ->> 'length')::real, (c ->> 'width')::real, (c ->> 'depth')::real, c ->> 'girdle', c ->> 'culetSize',
       (d ->> 'eyeClean') = '100%', d -> 'supplier' ->> 'name', '\x00'::bytea, 1, 1, now(), now()
  FROM raw_floor r
 CROSS JOIN LATERAL (SELECT r.payload -> 'diamond' AS d) e
 CROSS JOIN LATERAL (SELECT e.d -> 'certificate' AS c) f
ON CONFLICT (feed, supplier_stone_id) DO UPDATE SET feed_price_cents = excluded.feed_price_cents
