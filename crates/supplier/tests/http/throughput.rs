//! Throughput of pages. The measurement is ignored by default, because it depends on the machine.

use crate::fixture::{SupplierFixture, default_query, page_document};
use serde_json::json;
use std::time::Instant;
use tidemill_supplier::{Config, STANDARD_SELECTION};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const STONES: u32 = 500_000;
const READERS: u64 = 4;
/// Borders of ranges of the price in dollars with similar numbers of stones.
const BORDERS: [u64; 10] = [0, 500, 1_000, 1_500, 2_000, 2_500, 3_500, 6_000, 12_000, 99_999_999];

/// A connection that sends requests one after the other.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: std::net::SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: vec![0; 1 << 21] }
    }

    /// Sends a request; returns the body of the response.
    async fn send(&mut self, request: &str) -> &[u8] {
        let (stream, buffer) = (&mut self.stream, &mut self.buffer);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut have = stream.read(buffer).await.unwrap();
        let (head, start) = loop {
            if let Some(end) = buffer[..have].windows(4).position(|four| four == b"\r\n\r\n") {
                break (String::from_utf8_lossy(&buffer[..end]).to_lowercase(), end + 4);
            }
            have += stream.read(&mut buffer[have..]).await.unwrap();
        };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let end = start + length.trim().parse::<usize>().unwrap();
        while have < end {
            have += stream.read(&mut buffer[have..]).await.unwrap();
        }
        &self.buffer[start..end]
    }
}

/// Reads all pages of a price range over one connection; parses only `total_count`.
async fn read_pages(address: std::net::SocketAddr, token: &str, dollars: (u64, u64)) -> u64 {
    let mut connection = Connection::open(address).await;
    let mut offset = 0;
    loop {
        let mut query = default_query();
        query["dollar_value"] = json!({"from": dollars.0, "to": dollars.1});
        let variables = json!({"token": token, "query": query, "offset": offset, "limit": 30});
        let body = json!({"query": page_document(STANDARD_SELECTION), "variables": variables}).to_string();
        let length = body.len();
        let request =
            format!("POST /api/diamonds HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
        let body = connection.send(&request).await;
        let text = String::from_utf8_lossy(&body[..body.len().min(80)]);
        let (_, rest) = text.split_once("\"total_count\":").unwrap_or_else(|| panic!("{text}"));
        let count: u64 = rest.split(',').next().unwrap().parse().unwrap();
        if count == 0 {
            return offset;
        }
        offset += count;
    }
}

/// Reads all pages of a list of the REST API over one connection; parses only the last id.
async fn read_items(address: std::net::SocketAddr, dollars: (u64, u64), limit: usize) {
    let mut connection = Connection::open(address).await;
    let mut after = String::new();
    loop {
        let (from, to) = dollars;
        let request = format!(
            "GET /rest/keyset/items?price_from={from}&price_to={to}&limit={limit}{after} HTTP/1.1\r\nhost: x\r\n\r\n"
        );
        let body = String::from_utf8_lossy(connection.send(&request).await).into_owned();
        let id = body.rsplit("\"id\":\"").next().and_then(|rest| rest.split('"').next()).unwrap();
        after = format!("&after_id={id}");
        if body.ends_with("\"has_more\":false}}") {
            return;
        }
    }
}

#[tokio::test]
async fn one_connection_serves_all_pages() {
    let fixture = SupplierFixture::stones(200).await;
    let all = read_pages(fixture.supplier.local_addr, &fixture.token, (0, 99_999_999)).await;
    assert_eq!((all, fixture.supplier.handle.stats().pages), (200, 8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: run it with optimisation, on a quiet machine"]
async fn throughput_in_stones_per_second() {
    let fixture = SupplierFixture::new(Config { stones: STONES, ..Config::default() }).await;
    let address = fixture.supplier.local_addr;
    let start = Instant::now();
    let mut readers = Vec::new();
    for reader in 0..READERS {
        let token = fixture.token.clone();
        let mine = BORDERS.windows(2).enumerate().filter(move |(at, _)| *at as u64 % READERS == reader);
        let mine: Vec<(u64, u64)> = mine.map(|(_, pair)| (pair[0], pair[1] - 1)).collect();
        readers.push(tokio::spawn(async move {
            let mut sum = 0;
            for dollars in mine {
                sum += read_pages(address, &token, dollars).await;
            }
            sum
        }));
    }
    let mut sum = 0;
    for reader in readers {
        sum += reader.await.unwrap();
    }
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(sum, u64::from(STONES));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!(
        "{:.0} stones per second; {peak}; {:?}",
        f64::from(STONES) / seconds,
        fixture.supplier.handle.stats()
    );
}

#[tokio::test]
async fn one_connection_serves_all_items() {
    let fixture = SupplierFixture::stones(200).await;
    read_items(fixture.supplier.local_addr, (0, 99_999_999), 30).await;
    let stats = fixture.supplier.handle.stats();
    assert_eq!((stats.stones, stats.pages), (200, 7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: run it with optimisation, on a quiet machine"]
async fn throughput_of_the_rest_api_in_items_per_second() {
    let fixture = SupplierFixture::new(Config { stones: STONES, ..Config::default() }).await;
    let address = fixture.supplier.local_addr;
    for limit in [30, 1_000] {
        let before = fixture.supplier.handle.stats().stones;
        let start = Instant::now();
        let readers = (0..READERS).map(|reader| {
            let mine = BORDERS.windows(2).enumerate().filter(move |(at, _)| *at as u64 % READERS == reader);
            tokio::spawn(async move {
                for (_, pair) in mine {
                    read_items(address, (pair[0], pair[1]), limit).await;
                }
            })
        });
        for reader in readers.collect::<Vec<_>>() {
            reader.await.unwrap();
        }
        let seconds = start.elapsed().as_secs_f64();
        assert_eq!(fixture.supplier.handle.stats().stones - before, u64::from(STONES));
        println!("{:.0} items per second at {limit} per page", f64::from(STONES) / seconds);
    }
}
