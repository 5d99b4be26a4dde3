//! Throughput of pages. The measurement is ignored by default, because it depends on the machine.

use crate::fixture::{SupplierFixture, default_query, page_document};
use serde_json::json;
use std::time::Instant;
use tidemill_supplier::{Config, STANDARD_SELECTION};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const STONES: u32 = 500_000;
const READERS: u64 = 4;

/// Reads all pages of a price range over one connection; parses only `total_count`.
async fn read_pages(address: std::net::SocketAddr, token: &str, dollars: (u64, u64)) -> u64 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut offset, mut buffer) = (0, vec![0; 1 << 17]);
    loop {
        let mut query = default_query();
        query["dollar_value"] = json!({"from": dollars.0, "to": dollars.1});
        let variables = json!({"token": token, "query": query, "offset": offset, "limit": 30});
        let body = json!({"query": page_document(STANDARD_SELECTION), "variables": variables}).to_string();
        let length = body.len();
        let request =
            format!("POST /api/diamonds HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut have = stream.read(&mut buffer).await.unwrap();
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
        let text = String::from_utf8_lossy(&buffer[start..end.min(start + 80)]);
        let (_, rest) = text.split_once("\"total_count\":").unwrap_or_else(|| panic!("{text}"));
        let count: u64 = rest.split(',').next().unwrap().parse().unwrap();
        if count == 0 {
            return offset;
        }
        offset += count;
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
    let borders = [0, 500, 1_000, 1_500, 2_000, 2_500, 3_500, 6_000, 12_000, 99_999_999];
    let start = Instant::now();
    let mut readers = Vec::new();
    for reader in 0..READERS {
        let token = fixture.token.clone();
        let mine = borders.windows(2).enumerate().filter(move |(at, _)| *at as u64 % READERS == reader);
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
