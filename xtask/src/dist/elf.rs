//! Facts about an ELF binary: whether it needs a dynamic linker, and whether it has symbols.

/// Program header that names the dynamic linker.
const PT_INTERP: usize = 3;
/// Section of symbols, which stripping removes.
const SHT_SYMTAB: usize = 2;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) is_static: bool,
    pub(super) is_stripped: bool,
}

/// Returns the facts of a little-endian 64-bit binary, or `None` for any other file.
pub(super) fn facts(bytes: &[u8]) -> Option<Facts> {
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let headers = |start: usize, size: usize, count: usize, field: usize| {
        let (start, size, count) =
            (number(bytes, start, 8)?, number(bytes, size, 2)?, number(bytes, count, 2)?);
        (0..count).map(|index| number(bytes, start + index * size + field, 4)).collect::<Option<Vec<_>>>()
    };
    let segments = headers(32, 54, 56, 0)?;
    let sections = headers(40, 58, 60, 4)?;
    let is_static = !segments.contains(&PT_INTERP);
    let is_stripped = !sections.contains(&SHT_SYMTAB);
    Some(Facts { is_static, is_stripped })
}

/// Reads a little-endian number of `size` bytes.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| (number << 8) | usize::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_program_is_dynamic_and_has_symbols() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(facts(&bytes), Some(Facts { is_static: false, is_stripped: false }));
    }

    #[test]
    fn truncated_or_foreign_file_has_no_facts() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(facts(&bytes[..60]), None);
        assert_eq!(facts(b"#!/bin/sh"), None);
    }
}
