//! Tests of the lists and their rules.

use super::*;
use std::net::IpAddr;

fn rules(entries: &[&str]) -> HostRules {
    entries.iter().map(|entry| entry.parse::<HostRule>().unwrap()).collect()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn endpoints_match_names_patterns_and_networks() {
    for (entry, host, port, is) in [
        ("api.nivoda.net", "api.nivoda.net", 443, true),
        ("api.nivoda.net", "API.Nivoda.NET.", 80, true),
        ("api.nivoda.net", "evil-api.nivoda.net", 443, false),
        ("api.nivoda.net", "api.nivoda.net.evil.com", 443, false),
        ("api.nivoda.net:443", "api.nivoda.net", 443, true),
        ("api.nivoda.net:443", "api.nivoda.net", 8443, false),
        ("*.example.com", "a.example.com", 443, true),
        ("*.example.com", "a.b.example.com", 443, true),
        ("*.example.com", "example.com", 443, false),
        ("*.example.com", ".example.com", 443, false),
        ("*.example.com", "badexample.com", 443, false),
        ("127.0.0.1:8700", "127.0.0.1", 8700, true),
        ("127.0.0.1:8700", "127.0.0.1", 8701, false),
        ("127.0.0.1", "localhost", 80, false),
        ("localhost", "127.0.0.1", 80, false),
        ("10.0.0.0/8", "10.9.8.7", 80, true),
        ("10.0.0.0/8", "11.0.0.1", 80, false),
        ("10.0.0.0/8:80", "10.9.8.7", 81, false),
        ("0.0.0.0/0", "8.8.8.8", 80, true),
        ("0.0.0.0/0", "::1", 80, false),
        ("fd00::/8", "[fd12::1]", 80, true),
        ("[fd00::1]:80", "fd00::1", 80, true),
        ("[fd00::/8]:80", "fd00::1", 81, false),
        ("127.0.0.1", "::ffff:127.0.0.1", 80, false),
    ] {
        assert_eq!(rules(&[entry]).allows(host, port), is, "{entry} {host}:{port}");
    }
    assert!(!HostRules::default().allows("api.nivoda.net", 443));
}

#[test]
fn addresses_that_are_not_public_need_a_rule() {
    let named = rules(&["supplier.example.com"]);
    for text in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.9.9.9",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "64:ff9b::7f00:1",
        "2001:db8::1",
        "2002:7f00:1::",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ] {
        assert!(!named.allows_address("supplier.example.com", address(text), 443), "{text}");
        let listed = rules(&["supplier.example.com", text]);
        assert!(listed.allows_address("supplier.example.com", address(text), 443), "{text}");
    }
    for text in ["8.8.8.8", "172.32.0.1", "192.1.0.1", "2606:4700::1111", "2a00:1450::1"] {
        assert!(named.allows_address("supplier.example.com", address(text), 443), "{text}");
    }
}

#[test]
fn localhost_rule_covers_loopback_addresses_of_that_name_only() {
    let rules = rules(&["localhost:8700", "*.example.com"]);
    assert!(rules.allows_address("localhost", address("127.0.0.1"), 8700));
    assert!(rules.allows_address("LOCALHOST.", address("::1"), 8700));
    assert!(!rules.allows_address("localhost", address("127.0.0.1"), 22));
    assert!(!rules.allows_address("localhost", address("10.0.0.1"), 8700));
    assert!(!rules.allows_address("a.example.com", address("127.0.0.1"), 8700));
}

#[test]
fn invalid_host_entries_are_refused_with_a_reason() {
    for (entry, part) in [
        ("", "is not a host"),
        ("*", "is not a host"),
        ("*.*.com", "is not a host"),
        ("a*.example.com", "is not a host"),
        ("https://api.nivoda.net", "is not a host"),
        ("api.nivoda.net/path", "is not a network"),
        ("127.1", "is not a host"),
        ("0x7f000001", "is not a host"),
        ("api.nivoda.net:0", "invalid port"),
        ("api.nivoda.net:http", "invalid port"),
        ("10.0.0.0/33", "invalid prefix"),
        ("[::1", "no closing bracket"),
        ("[::1]80", "no colon"),
    ] {
        let reason = entry.parse::<HostRule>().unwrap_err();
        assert!(reason.contains(part), "{entry}: {reason}");
    }
}

#[test]
fn destinations_match_by_their_parts() {
    for (entry, url, is) in [
        ("file:///var/lib/w/", "file:///var/lib/w/a.json", true),
        ("file:///var/lib/w/", "/var/lib/w/a/b.json", true),
        ("/var/lib/w/", "file://localhost/var/lib/w/a.json", true),
        ("file:///var/lib/w/", "/var/lib/w", false),
        ("file:///var/lib/w/", "/var/lib/wrong/a.json", false),
        ("file:///var/lib/w/", "/var/lib/w/../a.json", false),
        ("file:///var/lib/w/", "/var/lib/w/./a.json", false),
        ("file:///var/lib/w/", "/var/lib/w//a.json", false),
        ("file:///var/lib/w/", "/var//lib/w/a.json", false),
        ("file:///var/lib/w/a.json", "/var/lib/w/a.json", true),
        ("file:///var/lib/w/a.json", "/var/lib/w/a.json.d/x", false),
        ("s3://bucket/w/", "s3://bucket/w/a.json", true),
        ("s3://bucket/w/", "s3://bucket/wide/a.json", false),
        ("s3://bucket/", "s3://bucket/a.json", true),
        ("s3://bucket/", "s3://bucket2/a.json", false),
        ("s3://bucket/", "az://bucket/a.json", false),
        ("az://box/w/", "az://box/w/a.json", true),
        ("s3://etc/", "/etc/passwd", false),
    ] {
        assert_eq!(entry.parse::<DestinationRule>().unwrap().allows(url), is, "{entry} {url}");
    }
    for bad in ["", "/", "file:///", "w/", "file://w/", "https://host/", "/a/../b/", "s3://", "s3:///a/"] {
        assert!(bad.parse::<DestinationRule>().is_err(), "{bad}");
    }
}

#[test]
fn tables_match_by_name_or_by_schema() {
    for (entry, schema, table, is) in [
        ("public.orders", "public", "orders", true),
        ("public.orders", "public", "orders2", false),
        ("public.orders", "Public", "orders", false),
        ("shop.*", "shop", "anything", true),
        ("shop.*", "shop2", "anything", false),
    ] {
        let rule: TableRule = entry.parse().unwrap();
        let name = TableName { schema: schema.to_owned(), table: table.to_owned() };
        assert_eq!(rule.allows(&name), is, "{entry} {name}");
        assert_eq!(rule.to_string(), entry);
    }
    for bad in
        ["", "orders", "*", "*.*", "*.orders", "public.", ".orders", "public.or*", "a.b.c", "public.\"x\""]
    {
        let reason = bad.parse::<TableRule>().unwrap_err();
        assert!(reason.contains("is not a table; write SCHEMA.TABLE"), "{bad}: {reason}");
    }
}

#[test]
fn entries_apply_to_their_project_and_refusals_name_the_key() {
    let mut reach = Reach::default();
    reach.common.set(ReachKind::Environment, ["NIVODA_PASSWORD"]).unwrap();
    let mut shop = ReachList::default();
    shop.set(ReachKind::Hosts, ["api.nivoda.net"]).unwrap();
    shop.set(ReachKind::HookSecrets, ["GITHUB_SECRET"]).unwrap();
    reach.projects.insert("shop".to_owned(), shop);
    let uses = [Use::Environment("NIVODA_PASSWORD"), Use::Host { host: "api.nivoda.net", port: 443 }];
    assert_eq!(reach.check("shop", uses), Ok(()));
    let error = reach.check("bank", uses).unwrap_err();
    assert_eq!(error.to_string(), "project `bank` may not use host `api.nivoda.net:443`");
    assert_eq!(
        error.hint(),
        "the operator can add `api.nivoda.net:443` to reach.hosts or reach.project.bank.hosts in the configuration \
         of the server"
    );
    // A secret of a hook is not a password of a feed, and the other way round.
    let error = reach.check("shop", [Use::Environment("GITHUB_SECRET"), Use::HookSecret("NIVODA_PASSWORD")]);
    let kinds: Vec<ReachKind> = error.unwrap_err().refused.iter().map(|used| used.kind).collect();
    assert_eq!(kinds, [ReachKind::Environment, ReachKind::HookSecrets]);
    assert!(Reach::default().check("shop", [Use::Destination("/tmp/w.json")]).is_err());
    let table = TableName { schema: "public".to_owned(), table: "orders".to_owned() };
    let error = reach.check("shop", [Use::Environment("A"), Use::Table(&table)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "project `shop` may not use environment variable `A`, table `public.orders`"
    );
    assert!(error.hint().contains("`public.orders` to reach.tables or reach.project.shop.tables"));
}

#[test]
fn lists_print_their_entries_and_are_bounded() {
    let mut list = ReachList::default();
    for (kind, entries) in [
        (ReachKind::Environment, vec!["A", "B_2"]),
        (ReachKind::Hosts, vec!["*.example.com:443", "10.0.0.0/8", "[fd00::/8]:80", "a.example"]),
        (ReachKind::Tables, vec!["public.orders", "shop.*"]),
        (ReachKind::Destinations, vec!["file:///var/w/", "s3://bucket/key.json"]),
        (ReachKind::HookSecrets, vec!["C"]),
    ] {
        list.set(kind, entries.iter().copied()).unwrap();
        let mut printed = list.entries(kind);
        printed.sort();
        let mut expected = entries.clone();
        expected.sort_unstable();
        assert_eq!(printed, expected);
    }
    assert!(list.set(ReachKind::Environment, ["A=B"]).is_err());
    assert!(list.set(ReachKind::Environment, vec!["A"; crate::limits::REACH_ENTRIES_MAX + 1]).is_err());
}
