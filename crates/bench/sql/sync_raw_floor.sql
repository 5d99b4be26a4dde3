CREATE TABLE raw_floor (feed text COLLATE "C" NOT NULL, stone text COLLATE "C" NOT NULL, payload jsonb NOT NULL,
    PRIMARY KEY (feed, stone));
