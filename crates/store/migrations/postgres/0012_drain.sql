-- Worker processes that were asked to drain: they end what they have, and take nothing new.
ALTER TABLE {ops}.workers ADD COLUMN draining boolean NOT NULL DEFAULT false;
