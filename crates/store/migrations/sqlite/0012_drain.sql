-- Worker processes that were asked to drain: they end what they have, and take nothing new.
ALTER TABLE workers ADD COLUMN draining INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1));
