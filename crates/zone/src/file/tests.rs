use super::*;
use crate::record::{Record, RecordRef};
use crate::zone::{ZoneBuilder, ZoneError};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::Read;
use std::time::{Duration, Instant};
use wire::name::NameBuf;

/// Records and errors of a file in which includes are found in `files`.
fn read_all(
    text: &[u8],
    files: &HashMap<&str, &str>,
    bounds: Bounds,
) -> (Vec<Record>, Vec<FileError>) {
    let origin: NameBuf = "example.com".parse().unwrap();
    let open: Opener<'_> = Box::new(|path| {
        let text = files
            .get(path)
            .copied()
            .ok_or(std::io::ErrorKind::NotFound)?;
        Ok(Box::new(text.as_bytes()) as Box<dyn Read>)
    });
    let settings = Settings {
        bounds,
        ..Settings::new(origin.as_name())
    };
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    for result in Reader::new("zones/zone", text, open, settings) {
        match result {
            Ok(record) => records.push(record),
            Err(error) => errors.push(error),
        }
    }
    (records, errors)
}

fn records(text: &str) -> Vec<String> {
    let (records, errors) = read_all(text.as_bytes(), &HashMap::new(), Bounds::default());
    assert_eq!(errors, [], "{text}");
    records.iter().map(Record::to_string).collect()
}

/// Line, column and text of each error.
fn errors(text: &str) -> Vec<(u32, u32, String)> {
    let (_, errors) = read_all(text.as_bytes(), &HashMap::new(), Bounds::default());
    let parts = |error: FileError| (error.line, error.column, error.what);
    errors.into_iter().map(parts).collect()
}

// -------------------------------------------------------------------------------------------- records

#[test]
fn ttl_and_class_in_either_order_or_left_out() {
    assert_eq!(
        records(
            "$TTL 1h\n\
             a IN 60 A 192.0.2.1\n\
             \t2m IN A 192.0.2.2\n\
             \tA 192.0.2.3\n\
             b.example.net. in a 192.0.2.4\n\
             IN IN A 192.0.2.5\n\
             @ CLASS1 TYPE1 192.0.2.6"
        ),
        [
            "a.example.com. 60 IN A 192.0.2.1",
            "a.example.com. 120 IN A 192.0.2.2",
            "a.example.com. 3600 IN A 192.0.2.3",
            "b.example.net. 3600 IN A 192.0.2.4",
            "IN.example.com. 3600 IN A 192.0.2.5",
            "example.com. 3600 IN A 192.0.2.6",
        ]
    );
}

#[test]
fn without_a_default_the_ttl_stated_last_holds_and_at_first_the_soas_minimum() {
    assert_eq!(
        records(
            "@ SOA ns host 1 1h 15m 4w 5m\n\
             a A 192.0.2.1\n\
             b 7 A 192.0.2.2\n\
             c A 192.0.2.3\n"
        ),
        [
            "example.com. 300 IN SOA ns.example.com. host.example.com. 1 3600 900 2419200 300",
            "a.example.com. 300 IN A 192.0.2.1",
            "b.example.com. 7 IN A 192.0.2.2",
            "c.example.com. 7 IN A 192.0.2.3",
        ]
    );
    let (line, _, what) = &errors("a A 192.0.2.1")[0];
    assert!(*line == 1 && what.starts_with("no TTL"), "{what}");
}

#[test]
fn origins_change_and_come_back_after_an_include() {
    let files = HashMap::from([("sub/inner", "$ORIGIN b\n@ A 192.0.2.2\nd A 192.0.2.3\n")]);
    let text = "$TTL 5\nx A 192.0.2.1\n$INCLUDE sub/inner a\n\tA 192.0.2.4\n$INCLUDE \"sub/inner\"\ny A 192.0.2.5";
    let (records, errors) = read_all(text.as_bytes(), &files, Bounds::default());
    assert_eq!(errors, []);
    let owners: Vec<String> = records.iter().map(Record::to_string).collect();
    assert_eq!(
        owners,
        [
            "x.example.com. 5 IN A 192.0.2.1",
            "b.a.example.com. 5 IN A 192.0.2.2",
            "d.b.a.example.com. 5 IN A 192.0.2.3",
            "x.example.com. 5 IN A 192.0.2.4",
            "b.example.com. 5 IN A 192.0.2.2",
            "d.b.example.com. 5 IN A 192.0.2.3",
            "y.example.com. 5 IN A 192.0.2.5",
        ]
    );
}

#[test]
fn an_error_names_the_included_file_with_its_folder() {
    let files = HashMap::from([
        ("sub/inner", "$INCLUDE deeper\na A 1.2\n"),
        ("deeper", "b A\n"),
    ]);
    let text = b"$TTL 5\n$INCLUDE sub/inner\nc A\n";
    let (_, errors) = read_all(text, &files, Bounds::default());
    let places: Vec<(&str, u32)> = errors
        .iter()
        .map(|error| (&*error.file, error.line))
        .collect();
    assert_eq!(
        places,
        [
            ("zones/deeper", 1),
            ("zones/sub/inner", 2),
            ("zones/zone", 3)
        ]
    );
}

/// RFC 1035 §5.1: parentheses "group data that crosses a line boundary", and only a blank stands for the owner before.
#[test]
fn a_parenthesis_in_the_first_column_is_no_blank() {
    assert_eq!(
        records(
            "a 5 A 192.0.2.1\n\
             (txt 5 A 192.0.2.2)\n\
             ( ; here\n mx 5 A ( 192.0.2.3\n))\n \
             ( 5 A 192.0.2.4 )\n"
        ),
        [
            "a.example.com. 5 IN A 192.0.2.1",
            "txt.example.com. 5 IN A 192.0.2.2",
            "mx.example.com. 5 IN A 192.0.2.3",
            "mx.example.com. 5 IN A 192.0.2.4",
        ]
    );
}

#[test]
fn marks_line_ends_comments_and_parentheses() {
    assert_eq!(
        records(
            "\u{feff}$TTL 5 ; five\r\n\r\n; nothing\r\na A ( ; here\r\n 192.0.2.1\r\n )\r\n\t \r\n\tTXT ( \"a;b\" c;d\n\"e\" )\n"
        ),
        [
            "a.example.com. 5 IN A 192.0.2.1",
            r#"a.example.com. 5 IN TXT "a;b" "c" "e""#,
        ]
    );
}

#[test]
fn escapes_in_names_and_strings() {
    assert_eq!(
        records(r#"a\.b\032c\@ 5 TXT a\"b "c\\d\"\000\255" "" \;"#),
        [r#"a\.b\032c\@.example.com. 5 IN TXT "a\"b" "c\\d\"\000\255" "" ";""#]
    );
}

#[test]
fn generate_makes_records() {
    assert_eq!(
        records(
            "$TTL 5\n\
             $GENERATE 1-3/2 host-${0,2} A 192.0.2.$\n\
             $GENERATE 0-1 $ 60 IN MX \"$ mail-$\"\n\
             $GENERATE 18-18 ${0,5,n}.ip6.arpa. PTR $$-${1}\n\
             $GENERATE 7-7 @ TXT \"a $\" b\n"
        ),
        [
            "host-01.example.com. 5 IN A 192.0.2.1",
            "host-03.example.com. 5 IN A 192.0.2.3",
            "0.example.com. 60 IN MX 0 mail-0.example.com.",
            "1.example.com. 60 IN MX 1 mail-1.example.com.",
            "2.1.0.ip6.arpa. 5 IN PTR \\$-19.example.com.",
            r#"example.com. 5 IN TXT "a 7" "b""#,
        ]
    );
}

/// named-compilezone reads it so.
#[test]
fn a_blank_owner_behind_generate_is_the_one_before_it() {
    assert_eq!(
        records(
            "$TTL 5\n\
             a A 192.0.2.9\n\
             $GENERATE 1-2 b$ A 192.0.2.$\n\
             \tTXT \"of a\"\n"
        ),
        [
            "a.example.com. 5 IN A 192.0.2.9",
            "b1.example.com. 5 IN A 192.0.2.1",
            "b2.example.com. 5 IN A 192.0.2.2",
            r#"a.example.com. 5 IN TXT "of a""#,
        ]
    );
    let found = errors("$TTL 5\n$GENERATE 1-2 b$ A 192.0.2.$\n\tTXT \"of nobody\"\n");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, 3);
    assert!(found[0].2.starts_with("no owner"), "{}", found[0].2);
}

// --------------------------------------------------------------------------------------------- errors

#[test]
fn errors_say_where_and_reading_goes_on() {
    let found = errors(
        "$TTL 5\n\
         a A 192.0.2.256\n\
         b NOPE x\n\
         c A\n\
         d A (\n  192.0.2.1\n  more )\n\
         e TXT \"open\n\
         f 4294967296 A 192.0.2.1\n\
         g..h A 192.0.2.1\n\
         \tA 192.0.2.1\n\
         h CH A 192.0.2.1\n\
         $NOPE\n\
         i MX ten mail\n\
         j ANY x\n\
         k A 192.0.2.1)\n\
         l TYPE731 abc\n",
    );
    let places: Vec<(u32, u32)> = found
        .iter()
        .map(|(line, column, _)| (*line, *column))
        .collect();
    assert_eq!(
        places,
        [
            (2, 5),
            (3, 3),
            (4, 4),
            (7, 3),
            (8, 7),
            (9, 3),
            (10, 1),
            (11, 2),
            (12, 3),
            (13, 1),
            (14, 6),
            (15, 3),
            (16, 14),
            (17, 11),
        ],
        "{found:#?}"
    );
    assert_eq!(
        found[0].2,
        "'192.0.2.256': an IPv4 address such as 192.0.2.1 belongs here; the form is: A IPv4-address"
    );
}

#[test]
fn a_ttl_that_is_none_says_what_one_is() {
    for wrong in ["4294967296", "7102w", "1h30", "1y"] {
        let found = errors(&format!("$TTL {wrong}\na {wrong} A 192.0.2.1\n"));
        let right =
            format!("'{wrong}': a TTL from 0 to 2147483647 seconds (RFC 2181 §8), or with units");
        let places: Vec<(u32, u32)> = found.iter().map(|error| (error.0, error.1)).collect();
        assert_eq!(places, [(1, 6), (2, 3)], "{found:?}");
        assert!(
            found.iter().all(|error| error.2.starts_with(&right)),
            "{found:?}"
        );
    }
}

#[test]
fn a_word_too_many_is_one_of_a_record_or_of_a_directive() {
    let found = errors("$TTL 1h extra\n$ORIGIN a. b\nx 5 A 192.0.2.1 y\n");
    let place = |entry: &str| format!("too much: {entry} was complete before this word");
    let (directive, record) = (place("the directive"), place("the record"));
    for (error, what) in found.iter().zip([&directive, &directive, &record]) {
        assert!(error.2.contains(what), "{found:?}");
    }
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn f35_includes_stay_in_the_folder_and_are_bounded() {
    for path in ["../x", "/etc/passwd", "a/../../b", "\"\"", "a\\000b"] {
        let found = errors(&format!("$INCLUDE {path}\n"));
        assert_eq!((found[0].0, found[0].1), (1, 10), "{path}: {found:?}");
        assert!(found[0].2.contains("folder"), "{path}: {found:?}");
    }
    assert!(
        errors("$INCLUDE nowhere\na 1 A 192.0.2.1\n")[0]
            .2
            .contains("cannot be opened")
    );
    let files = HashMap::from([("self", "$INCLUDE self\n$INCLUDE self\n")]);
    let (_, found) = read_all(b"$INCLUDE self", &files, Bounds::default());
    assert!(found.len() == 1 && found[0].is_last, "{found:?}");
    let files = HashMap::from([("leaf", "")]);
    let text = "$INCLUDE leaf\n".repeat(1_001);
    let (_, found) = read_all(text.as_bytes(), &files, Bounds::default());
    assert_eq!((found.len(), found[0].line), (1, 1_001));
}

#[test]
fn f35_generate_is_bounded() {
    let found = errors("$GENERATE 0-2147483647 a$ 5 A 192.0.2.1\n");
    assert!(found[0].2.contains("at most 1048576"), "{found:?}");
    // The first that cannot be ends it.
    let found = errors("$TTL 5\n$GENERATE 250-1000 a$ A 192.0.2.$\n");
    assert_eq!((found.len(), found[0].0), (1, 2), "{found:?}");
    for wrong in [
        "x",
        "5-1 a A 1",
        "1-2",
        "1-2 a",
        "1-2 a A",
        "1-2 a NOPE 1",
        "1-2 ${x} A 1",
    ] {
        assert_eq!(errors(&format!("$GENERATE {wrong}\n")).len(), 1, "{wrong}");
    }
    let bounds = Bounds {
        records: 10,
        ..Bounds::default()
    };
    let (records, found) = read_all(
        b"$GENERATE 1-100 a 5 A 192.0.2.1\n",
        &HashMap::new(),
        bounds,
    );
    assert_eq!(
        (records.len(), found.len(), found[0].is_last),
        (10, 1, true)
    );
}

#[test]
fn f35_long_tokens_entries_and_strings() {
    let found = errors(&format!("{} 5 A 192.0.2.1\n", "a".repeat(4_096)));
    assert!(found[0].2.contains("63 are allowed"), "{found:?}");
    let found = errors(&format!("a 5 TXT {}\n", "a".repeat(4_096)));
    assert!(found[0].2.contains("255 is the most"), "{found:?}");
    let text = format!("a 5 TXT ( \"{}\n", "a".repeat(2 * ENTRY_LENGTH_MAX));
    assert!(errors(&text)[0].2.contains("entry of more than"));
    let many = format!("a 5 TXT {}\n", "aaa ".repeat(16_384));
    assert!(errors(&many)[0].2.contains("65535 is the most"));
    let most = format!("a 5 TXT {} \"\"\n", "aa ".repeat(21_844));
    assert_eq!(records(&most).len(), 1);
}

/// More than a message holds: said after they were sorted once.
#[test]
fn f35_a_million_records_of_one_owner_are_an_error_in_bounded_time() {
    let began = Instant::now();
    let (apex, _) = read_all(
        b"@ 5 SOA ns host 1 1 1 1 1\n@ 5 NS ns\nns 5 A 192.0.2.1\n",
        &HashMap::new(),
        Bounds::default(),
    );
    let origin: NameBuf = "example.com".parse().unwrap();
    let owner: NameBuf = "many.example.com".parse().unwrap();
    let mut builder = ZoneBuilder::new(origin.as_name());
    for record in &apex {
        builder.push(record.as_ref()).unwrap();
    }
    for number in 0..1_000_000_u32 {
        let rdata = number.wrapping_mul(2_654_435_761).to_be_bytes();
        let record = RecordRef {
            owner: owner.as_name().as_bytes(),
            kind: wire::codes::qtype::A,
            class: wire::codes::class::IN,
            ttl: 5,
            rdata: &rdata,
        };
        builder.push(record).unwrap();
    }
    let octets = match builder.finish().err() {
        Some(ZoneError::RrsetTooLong { octets, .. }) => octets,
        other => panic!("{other:?}"),
    };
    assert!(octets > 4_000_000, "{octets}");
    // Seconds, in a debug build: a look at each pair would take hours.
    assert!(began.elapsed() < Duration::from_secs(120));
}

#[test]
fn entries_may_be_cut_anywhere_by_the_reader() {
    struct Drops<'t>(&'t [u8]);
    impl Read for Drops<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let length = self.0.len().min(buffer.len()).min(1);
            let (now, later) = self.0.split_at(length);
            buffer[..length].copy_from_slice(now);
            self.0 = later;
            Ok(length)
        }
    }
    let text = "$TTL 5\na A 192.0.2.1 ; x\n\tTXT (\"a\\\"b\"\n c)\nb\tA 192.0.2.2";
    let origin: NameBuf = "example.com".parse().unwrap();
    let open: Opener<'_> = Box::new(|_| Err(std::io::ErrorKind::NotFound.into()));
    let reader = Reader::new(
        "zone",
        Drops(text.as_bytes()),
        open,
        Settings::new(origin.as_name()),
    );
    let dropped: Vec<String> = reader.map(|record| record.unwrap().to_string()).collect();
    assert_eq!(dropped, records(text));
}

proptest! {
    #[test]
    fn any_octets_are_no_trouble(text in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_all(&text, &HashMap::new(), Bounds::default());
    }

    #[test]
    fn any_words_are_no_trouble(text in "([a-z0-9$@.(){}\"\\\\; \n-]|IN |A |TXT |SVCB |\\$GENERATE |LOC |5 ){0,60}") {
        let _ = read_all(text.as_bytes(), &HashMap::new(), Bounds::default());
    }
}
