//! The subject of an X.509 certificate, from its DER.
//!
//! ```text
//!  Certificate  SEQUENCE { TBSCertificate, … }
//!  TBS          SEQUENCE { [0] version?, serial, algorithm, issuer, validity, subject, … }
//!  subject      SEQUENCE of SET of SEQUENCE { type OID, value string }
//! ```
//!
//! The certificate has been verified before, so this only has to find its way; whatever it does
//! not expect makes it give up.

/// Who a certificate is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The last common name.
    pub(crate) common_name: Option<String>,
    /// As in RFC 4514: most specific part first.
    pub(crate) distinguished_name: String,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const VERSION: u8 = 0xa0;
const COMMON_NAME: &[u8] = &[0x55, 4, 3];

/// The subject; `None` if the bytes are not a certificate as expected.
pub(crate) fn subject(certificate: &[u8]) -> Option<Subject> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (mut rest, _) = take(certificate, SEQUENCE)?;
    if let Some((_, after)) = take(rest, VERSION) {
        rest = after;
    }
    for _ in ["serial", "algorithm", "issuer", "validity"] {
        (_, _, rest) = next(rest)?;
    }
    let (mut names, _) = take(rest, SEQUENCE)?;
    let mut parts = Vec::new();
    let mut common_name = None;
    while !names.is_empty() {
        let (mut set, after) = take(names, SET)?;
        names = after;
        let mut values = Vec::new();
        while !set.is_empty() {
            let (attribute, after) = take(set, SEQUENCE)?;
            set = after;
            let (oid, value) = take(attribute, OID)?;
            let (tag, value, _) = next(value)?;
            let value = text(tag, value)?;
            values.push(format!("{}={}", type_name(oid), escape(&value)));
            if oid == COMMON_NAME {
                common_name = Some(value);
            }
        }
        parts.push(values.join("+"));
    }
    parts.reverse();
    Some(Subject { common_name, distinguished_name: parts.join(",") })
}

/// Tag, content, and what follows.
fn next(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], mut rest) = der.split_first_chunk::<2>()?;
    let length = if first < 0x80 {
        usize::from(first)
    } else {
        let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        rest = after;
        if bytes.len() > 4 {
            return None;
        }
        bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte))
    };
    let (content, after) = rest.split_at_checked(length)?;
    Some((tag, content, after))
}

/// Content and what follows, if the tag is the expected one.
fn take(der: &[u8], expected: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, after) = next(der)?;
    (tag == expected).then_some((content, after))
}

fn text(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        // UTF8String, PrintableString, IA5String, NumericString
        0x0c | 0x13 | 0x16 | 0x12 => String::from_utf8(value.to_vec()).ok(),
        // TeletexString, in practice Latin-1
        0x14 => Some(value.iter().map(|&byte| char::from(byte)).collect()),
        // BMPString
        0x1e => {
            let units: Vec<u16> =
                value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

fn type_name(oid: &[u8]) -> String {
    match oid {
        [0x55, 4, 3] => "CN".to_owned(),
        [0x55, 4, 6] => "C".to_owned(),
        [0x55, 4, 7] => "L".to_owned(),
        [0x55, 4, 8] => "ST".to_owned(),
        [0x55, 4, 9] => "STREET".to_owned(),
        [0x55, 4, 10] => "O".to_owned(),
        [0x55, 4, 11] => "OU".to_owned(),
        [0x55, 4, 5] => "SERIALNUMBER".to_owned(),
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID".to_owned(),
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC".to_owned(),
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "EMAILADDRESS".to_owned(),
        _ => dotted(oid),
    }
}

fn dotted(oid: &[u8]) -> String {
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    for &byte in oid {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first.to_string());
                number -= first * 40;
            }
            numbers.push(number.to_string());
            number = 0;
        }
    }
    numbers.join(".")
}

/// Escapes what has a meaning in a distinguished name.
fn escape(value: &str) -> String {
    let mut out = String::new();
    let last = value.chars().count().saturating_sub(1);
    for (index, character) in value.chars().enumerate() {
        let special = matches!(character, ',' | '+' | '"' | '\\' | '<' | '>' | ';')
            || (index == 0 && matches!(character, ' ' | '#'))
            || (index == last && character == ' ');
        if special {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        if content.len() < 0x80 {
            out.push(u8::try_from(content.len()).unwrap());
        } else {
            out.push(0x82);
            out.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
        }
        out.extend(content);
        out
    }

    fn name(parts: &[(&[u8], &str)]) -> Vec<u8> {
        let sets: Vec<u8> = parts
            .iter()
            .flat_map(|(oid, value)| {
                let attribute = [der(OID, oid), der(0x0c, value.as_bytes())].concat();
                der(SET, &der(SEQUENCE, &attribute))
            })
            .collect();
        der(SEQUENCE, &sets)
    }

    fn certificate(subject: &[u8], version: bool) -> Vec<u8> {
        let mut tbs = Vec::new();
        if version {
            tbs.extend(der(VERSION, &der(2, &[2])));
        }
        tbs.extend(der(2, &[1; 20]));
        tbs.extend(der(SEQUENCE, &[]));
        tbs.extend(name(&[(&[0x55, 4, 3], "issuer")]));
        tbs.extend(der(SEQUENCE, &[0; 30]));
        tbs.extend(subject);
        tbs.extend(der(SEQUENCE, &[0; 200]));
        der(SEQUENCE, &der(SEQUENCE, &tbs))
    }

    #[test]
    fn names_are_found_and_written_backwards() {
        let names = name(&[(&[0x55, 4, 6], "DE"), (&[0x55, 4, 10], "A, B"), (COMMON_NAME, "bob")]);
        for version in [false, true] {
            let subject = subject(&certificate(&names, version)).unwrap();
            assert_eq!(subject.common_name.as_deref(), Some("bob"));
            assert_eq!(subject.distinguished_name, "CN=bob,O=A\\, B,C=DE");
        }
    }

    #[test]
    fn cut_certificates_have_no_subject() {
        let whole = certificate(&name(&[(COMMON_NAME, "bob")]), true);
        for length in 0..whole.len() {
            assert_eq!(subject(&whole[..length]), None);
        }
    }

    #[test]
    fn unknown_types_are_numbers() {
        assert_eq!(dotted(&[0x2a, 0x86, 0x48, 1]), "1.2.840.1");
    }
}
