//! The report as HTML and as Markdown.

use std::fmt::Write;

use super::svg::escaped;
use super::{Part, Report, Table};

/// For screens of 1,200 pixels, and for paper: there charts stand upright below each other, two or more to a sheet, and tables
/// are in small type behind them.
const LOOKS: &str = "\
body { max-width: 1140px; margin: 0 auto; padding: 16px; font: 15px/1.45 'DejaVu Sans', Verdana, Arial, sans-serif; color: #111; background: #fff }
h1 { font-size: 26px } h2 { font-size: 21px; margin-top: 40px; border-bottom: 1px solid #888 } h3 { font-size: 16px; margin-bottom: 6px }
nav { font-size: 13px } nav a { margin-right: 12px; color: #004a80 }
figure { margin: 0 0 28px; break-inside: avoid } figure svg { width: 100%; height: auto }
figcaption, .under { font-size: 12px; color: #333 } .under { margin: 0 0 6px }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: 12px; margin-bottom: 20px; width: 100% }
th, td { border: 1px solid #bbb; padding: 3px 6px; text-align: left; vertical-align: top }
.number { text-align: right } th { background: #eee }
tr { break-inside: avoid }
@page { size: A4 portrait; margin: 9mm 8mm }
@media print { nav { display: none } body { max-width: none; padding: 0; font-size: 10px; line-height: 1.3 }
h1 { font-size: 17px; margin: 0 } h2 { font-size: 14px; margin: 10px 0 3px } h3 { font-size: 10px; margin: 4px 0 1px }
h2, h3, h2 + p, .under, thead { break-after: avoid } p { margin: 3px 0; break-inside: avoid }
figure { margin: 0 0 6px } figcaption, .under { font-size: 7.5px; line-height: 1.2; margin: 0 0 2px }
.wide { overflow: visible } table { font-size: 7.5px; line-height: 1.15; margin-bottom: 6px } th, td { padding: 0 2px } td:first-child { white-space: nowrap } }
";

impl Report {
    /// One page that needs no other file.
    pub(in crate::bench) fn page(&self) -> String {
        let mut text = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>\n{LOOKS}</style>\n\
             </head>\n<body>\n<h1>{title}</h1>\n",
            title = escaped(&self.title)
        );
        for line in &self.conditions {
            let _ = writeln!(text, "<p>{}</p>", escaped(line));
        }
        text += "<nav>";
        for (number, part) in self.parts.iter().enumerate() {
            let _ = write!(
                text,
                "<a href=\"#part-{number}\">{}</a> ",
                escaped(&part.title)
            );
        }
        text += "</nav>\n";
        for (number, part) in self.parts.iter().enumerate() {
            part.html(number, &mut text);
        }
        text + "</body>\n</html>\n"
    }

    /// The same as Markdown; charts are files beside it.
    pub(in crate::bench) fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n", self.title);
        for line in &self.conditions {
            let _ = writeln!(text, "- {line}");
        }
        text += "\nThe same as one page: [report.html](report.html). Raw data: [results.json](results.json), \
                 [results.csv](results.csv).\n";
        self.parts.iter().for_each(|part| part.markdown(&mut text));
        text
    }
}

impl Part {
    fn html(&self, number: usize, text: &mut String) {
        let title = escaped(&self.title);
        let _ = writeln!(text, "<h2 id=\"part-{number}\">{title}</h2>");
        if !self.text.is_empty() {
            let _ = writeln!(text, "<p>{}</p>", escaped(&self.text));
        }
        for chart in &self.charts {
            let _ = writeln!(
                text,
                "<figure>\n<h3>{}</h3>\n{}<figcaption>{}</figcaption>\n</figure>",
                escaped(&chart.title),
                chart.svg,
                escaped(&chart.conditions)
            );
        }
        self.tables.iter().for_each(|table| table.html(text));
    }

    fn markdown(&self, text: &mut String) {
        let _ = write!(text, "\n## {}\n", self.title);
        if !self.text.is_empty() {
            let _ = write!(text, "\n{}\n", self.text);
        }
        for chart in &self.charts {
            let _ = write!(
                text,
                "\n**{}**\n\n![{}](charts/{}.svg)\n\n{}\n",
                shown(&chart.title),
                shown(&chart.title),
                chart.name,
                shown(&chart.conditions)
            );
        }
        self.tables.iter().for_each(|table| table.markdown(text));
    }
}

impl Table {
    fn html(&self, text: &mut String) {
        let alignments: Vec<&str> = (0..self.columns.len())
            .map(|at| self.alignment(at))
            .collect();
        let cells = |word: &str, scope: &str, cells: &mut dyn Iterator<Item = &str>| {
            let cells = cells.zip(&alignments);
            cells
                .map(|(cell, alignment)| {
                    format!("<{word}{scope}{alignment}>{}</{word}>", escaped(cell))
                })
                .collect::<String>()
        };
        let _ = writeln!(
            text,
            "<h3>{}</h3>\n{}<div class=\"wide\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>",
            escaped(&self.title),
            match self.conditions.as_str() {
                "" => String::new(),
                conditions => format!("<p class=\"under\">{}</p>\n", escaped(conditions)),
            },
            cells("th", " scope=\"col\"", &mut self.columns.iter().copied())
        );
        for row in &self.rows {
            let row = cells("td", "", &mut row.iter().map(String::as_str));
            let _ = writeln!(text, "<tr>{row}</tr>");
        }
        *text += "</tbody></table></div>\n";
    }

    /// Columns of numbers, and their headlines, stand at the right.
    fn alignment(&self, column: usize) -> &'static str {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let mut cells = cells.filter(|cell| !cell.is_empty()).peekable();
        let is_number = cells.peek().is_some() && cells.all(|cell| is_number(cell));
        if is_number { " class=\"number\"" } else { "" }
    }

    fn markdown(&self, text: &mut String) {
        let conditions = match self.conditions.as_str() {
            "" => String::new(),
            conditions => format!("{}\n\n", shown(conditions)),
        };
        let _ = write!(
            text,
            "\n**{}**\n\n{conditions}| {} |\n| --- |{}\n",
            shown(&self.title),
            self.columns.join(" | "),
            " ---: |".repeat(self.columns.len() - 1)
        );
        for row in &self.rows {
            let cell = |cell: &String| shown(cell).replace('|', "\\|");
            let cells: Vec<String> = row.iter().map(cell).collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }
}

/// A text in Markdown: what looks like an element of HTML, `<id:>` in BIND's version, would not be shown.
fn shown(text: &str) -> String {
    text.replace('<', "&lt;")
}

fn is_number(cell: &str) -> bool {
    let number = cell.trim_start_matches(['≥', '≤', '?', '+', '-', ' ']);
    number.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            title: "t".to_owned(),
            conditions: "CPU 1, Linux < 9".to_owned(),
            columns: vec!["name", "number"],
            rows: vec![vec!["a | b".to_owned(), "<5".to_owned()]],
        }
    }

    #[test]
    fn paper_has_no_scroll_bars() {
        let (_, print) = LOOKS.split_once("@media print").unwrap();
        assert!(print.contains(".wide { overflow: visible }"), "{print}");
        // Letters of 13 pixels in a chart of 1,120 are 6 points there, and two charts of four panels fit a sheet.
        assert!(LOOKS.contains("@page { size: A4 portrait;"), "{LOOKS}");
        assert!(
            LOOKS.contains("figure { margin: 0 0 28px; break-inside: avoid }"),
            "{LOOKS}"
        );
    }

    #[test]
    fn columns_of_numbers_stand_at_the_right_whatever_is_before_them() {
        for cell in ["5", "≥ 5", "≤ 87.8 %", "? 1", "+0.2", "-3"] {
            assert!(is_number(cell), "{cell}");
        }
        let rows = [["idle", "200", "", "no"], ["10 %", "≥ 5", "", ""]];
        let table = Table {
            title: "t".to_owned(),
            conditions: String::new(),
            columns: vec!["load", "offered", "nothing", "words"],
            rows: rows.map(|row| row.map(str::to_owned).to_vec()).to_vec(),
        };
        let aligned = (0..4).map(|column| table.alignment(column));
        let number = " class=\"number\"";
        assert_eq!(aligned.collect::<Vec<&str>>(), ["", number, "", ""]);
    }

    #[test]
    fn a_table_is_the_same_in_both_forms() {
        let (mut html, mut markdown) = (String::new(), String::new());
        table().html(&mut html);
        table().markdown(&mut markdown);
        assert!(html.contains("<td>a | b</td><td>&lt;5</td>"), "{html}");
        assert!(html.contains(">CPU 1, Linux &lt; 9</p>"), "{html}");
        assert!(
            markdown.contains("\n\nCPU 1, Linux &lt; 9\n\n| name"),
            "{markdown}"
        );
        assert!(html.contains("<th scope=\"col\">name</th>"), "{html}");
        assert!(
            markdown.contains("| --- | ---: |\n| a \\| b | &lt;5 |"),
            "{markdown}"
        );
    }
}
