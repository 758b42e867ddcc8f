//! Called without a command's name: which command the options mean.
//!
//! `-s` and `-d` are dnsperf's alone, `-i` and `-B` (in this place) kxdpgun's, and only kxdpgun takes a word that belongs to
//! no option, the target. Both or neither is for the user to decide.

use std::borrow::Cow;
use std::ffi::OsString;

/// What the options mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Xdp,
    Sockets,
    Both,
    Neither,
}

/// The options of both commands that have a value. Where the two differ (`-T`, `-e`, `-q`, `-v`), a word that follows is
/// taken for a value, so that it is not mistaken for a target, unless it is an option.
struct WithValue {
    short: Vec<char>,
    long: Vec<String>,
}

impl WithValue {
    fn of(commands: &[clap::Command]) -> WithValue {
        let arguments = commands.iter().flat_map(clap::Command::get_arguments);
        let with_value = arguments.filter(|argument| argument.get_action().takes_values());
        let (short, long): (Vec<_>, Vec<_>) = with_value
            .map(|argument| (argument.get_short(), argument.get_long()))
            .unzip();
        WithValue {
            short: short.into_iter().flatten().collect(),
            long: long.into_iter().flatten().map(str::to_owned).collect(),
        }
    }
}

/// Reads the options as far as needed to tell.
pub(super) fn meaning(arguments: &[OsString], commands: &[clap::Command]) -> Meaning {
    let with_value = WithValue::of(commands);
    let (mut xdp, mut sockets) = (false, false);
    let is_value = |word: &Cow<'_, str>| !word.starts_with('-') || word.len() == 1;
    let words = arguments.iter().map(|word| word.to_string_lossy());
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            let name = long.split_once('=').map_or(long, |(name, _)| name);
            xdp |= matches!(name, "infile" | "binary");
            if long == name && with_value.long.iter().any(|known| known == name) {
                words.next_if(is_value);
            }
        } else if let Some(short) = word.strip_prefix('-').filter(|short| !short.is_empty()) {
            let value_follows = each_letter(short, &with_value, |letter| {
                xdp |= matches!(letter, 'i' | 'B');
                sockets |= matches!(letter, 's' | 'd');
            });
            if value_follows {
                words.next_if(is_value);
            }
        } else {
            // A word of its own: the target.
            xdp = true;
        }
    }
    match (xdp, sockets) {
        (true, true) => Meaning::Both,
        (true, false) => Meaning::Xdp,
        (false, true) => Meaning::Sockets,
        (false, false) => Meaning::Neither,
    }
}

/// Shows the letters of `-rb10` one by one; `true`: the last one's value is the next word.
fn each_letter(short: &str, with_value: &WithValue, mut see: impl FnMut(char)) -> bool {
    for (at, letter) in short.char_indices() {
        see(letter);
        if with_value.short.contains(&letter) {
            return short[at + letter.len_utf8()..].is_empty();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(line: &str) -> Meaning {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        meaning(&words, &crate::commands::both())
    }

    #[test]
    fn published_command_lines_mean_what_they_meant() {
        for line in [
            "-Q 2500000 -p 53 -i random_1M 192.0.2.1 -t 60",
            "-t 120 -Q 6000000 -i ~/queries.txt -b 5 -r -p 8853 192.168.101.2",
            "-iqueries.txt 192.0.2.1",
            "--infile=queries.txt --qps 5 192.0.2.1",
            "192.0.2.1",
            "-rB -i f ::1",
            "--patience 3 192.0.2.1",
        ] {
            assert_eq!(means(line), Meaning::Xdp, "{line}");
        }
        for line in [
            "-s 192.0.2.1 -p 5300 -d uniq.txt -c 500 -T 16",
            "-d uniq.txt -l 10",
            "-s 192.0.2.1",
            "-evs192.0.2.1 -duniq.txt -q 5",
            "-s 192.0.2.1 -e -d uniq.txt",
            "-v -s 192.0.2.1 -d uniq.txt",
        ] {
            assert_eq!(means(line), Meaning::Sockets, "{line}");
        }
    }

    #[test]
    fn both_and_neither_are_told() {
        assert_eq!(means("-s 192.0.2.1 -i f"), Meaning::Both);
        assert_eq!(means("-s 192.0.2.1 -d f 192.0.2.1"), Meaning::Both);
        assert_eq!(means("-Q 1000 -t 5"), Meaning::Neither);
        assert_eq!(means("--quiet"), Meaning::Neither);
    }
}
