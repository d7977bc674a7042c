//! Names as trees spell them: quoted as Go does, since they may be any bytes, and that as JSON.

/// Adds a name to a JSON text, without the quotes around it.
pub(super) fn write(name: &[u8], out: &mut Vec<u8>) {
    for chunk in name.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '"' => out.extend_from_slice(br#"\\\""#),
                '\\' => out.extend_from_slice(br"\\\\"),
                '\x07' => out.extend_from_slice(br"\\a"),
                '\x08' => out.extend_from_slice(br"\\b"),
                '\x0c' => out.extend_from_slice(br"\\f"),
                '\n' => out.extend_from_slice(br"\\n"),
                '\r' => out.extend_from_slice(br"\\r"),
                '\t' => out.extend_from_slice(br"\\t"),
                '\x0b' => out.extend_from_slice(br"\\v"),
                '\0'..' ' | '\x7f' => byte(char as u8, out),
                '\u{80}'..'\u{a0}' => out.extend(format!(r"\\u{:04x}", char as u32).bytes()),
                _ => json_char(char, out),
            }
        }
        for invalid in chunk.invalid() {
            byte(*invalid, out);
        }
    }
}

fn byte(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(br"\\x");
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 15)]);
}

/// Adds a text to a JSON text, without the quotes around it, as Go's encoder spells it.
pub(super) fn write_json(text: &str, out: &mut Vec<u8>) {
    for char in text.chars() {
        match char {
            '"' => out.extend_from_slice(br#"\""#),
            '\\' => out.extend_from_slice(br"\\"),
            '\x08' => out.extend_from_slice(br"\b"),
            '\x0c' => out.extend_from_slice(br"\f"),
            '\n' => out.extend_from_slice(br"\n"),
            '\r' => out.extend_from_slice(br"\r"),
            '\t' => out.extend_from_slice(br"\t"),
            '\0'..' ' => out.extend(format!(r"\u{:04x}", char as u32).bytes()),
            _ => json_char(char, out),
        }
    }
}

fn json_char(char: char, out: &mut Vec<u8>) {
    match char {
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
            out.extend(format!(r"\u{:04x}", char as u32).bytes());
        }
        _ => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Reads a name that was quoted (the JSON is off already); none when it is not sound.
pub(super) fn read(quoted: &str) -> Option<Vec<u8>> {
    if !quoted.contains('\\') {
        return Some(quoted.as_bytes().to_vec());
    }
    let mut name = Vec::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    while let Some(char) = rest.next() {
        if char == '\\' {
            escape(&mut rest, &mut name)?;
        } else {
            name.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Some(name)
}

/// What follows a backslash.
fn escape(rest: &mut std::str::Chars<'_>, name: &mut Vec<u8>) -> Option<()> {
    let kind = rest.next()?;
    let mut number = |digits: usize, radix: u32, first: u32| {
        (0..digits).try_fold(first, |n, _| {
            Some(n * radix + rest.next()?.to_digit(radix)?)
        })
    };
    let byte = match kind {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '"' | '\'' | '\\' => kind as u8,
        'x' => u8::try_from(number(2, 16, 0)?).ok()?,
        '0'..='7' => u8::try_from(number(2, 8, kind.to_digit(8)?)?).ok()?,
        'u' | 'U' => {
            let code = number(if kind == 'u' { 4 } else { 8 }, 16, 0)?;
            let char = char::from_u32(code)?;
            name.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(());
        }
        _ => return None,
    };
    name.push(byte);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_bytes_come_back() {
        for (name, spelt) in [
            (&b"plain.txt"[..], "plain.txt"),
            (b"a \"b\" \\", r#"a \\\"b\\\" \\\\"#),
            (
                b"new\nline\ttab\x07\x1b\x7f",
                r"new\\nline\\ttab\\a\\x1b\\x7f",
            ),
            ("größe & <x>".as_bytes(), r"größe \u0026 \u003cx\u003e"),
            (b"caf\xe9", r"caf\\xe9"),
            ("\u{85}\u{2028}".as_bytes(), r"\\u0085\u2028"),
        ] {
            let mut out = Vec::new();
            write(name, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), spelt);
            let json: String = serde_json::from_str(&format!("\"{spelt}\"")).unwrap();
            assert_eq!(read(&json).as_deref(), Some(name));
        }
        assert_eq!(read(r"\U0001F600\101").as_deref(), Some("😀A".as_bytes()));
        for bad in [r"\", r"\q", r"\x1", r"\ud800", r"\777"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
