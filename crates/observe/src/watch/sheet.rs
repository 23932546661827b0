//! A table of cells that can be sorted, thinned out and written, on paper as on a terminal.

use std::cmp::Ordering;

/// One table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// Heads of the columns, from left to right.
    pub heads: Vec<Head>,
    /// Lines of cells, as many as there are heads.
    pub rows: Vec<Vec<Cell>>,
    /// Sums of all rows, left out ones too.
    pub total: Option<Vec<Cell>>,
}

/// Head of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its text.
    pub name: &'static str,
    /// Letters that it takes at least.
    pub width: usize,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words, to the left.
    Text(String),
    /// A whole number.
    Whole(f64),
    /// A number with prefixes from 100,000 on, and one decimal where it is small.
    Number(f64),
    /// Not measured.
    Missing,
}

impl Cell {
    /// A number, or that there is none.
    pub fn number(value: Option<f64>) -> Self {
        value.map_or(Self::Missing, Self::Number)
    }

    /// A whole number, or that there is none.
    pub fn whole(value: Option<f64>) -> Self {
        value.map_or(Self::Missing, Self::Whole)
    }

    /// Returns the text that is shown.
    pub fn text(&self) -> String {
        match self {
            // Names of devices are whatever somebody chose.
            Self::Text(text) => text.replace(char::is_control, "?"),
            Self::Whole(value) => format!("{value:.0}"),
            Self::Number(value) => short(*value),
            Self::Missing => "-".to_owned(),
        }
    }

    /// Returns true when the cell stands at the left of its column.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    /// Numbers by size, words by letters, what is missing before all.
    fn order(&self, other: &Self) -> Ordering {
        use Cell::{Missing, Number, Text, Whole};
        match (self, other) {
            (Number(a) | Whole(a), Number(b) | Whole(b)) => a.total_cmp(b),
            (Text(a), Text(b)) => a.cmp(b),
            (Missing, Missing) => Ordering::Equal,
            (Missing, _) | (Number(_) | Whole(_), Text(_)) => Ordering::Less,
            (_, Missing) | (Text(_), Number(_) | Whole(_)) => Ordering::Greater,
        }
    }
}

/// `0.4`, `12`, `99999`, `123k`, `4.5M`.
fn short(value: f64) -> String {
    if value < 9.95 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    if value < 99_999.5 {
        return format!("{value:.0}");
    }
    for (from, prefix) in [(1e12, 'T'), (1e9, 'G'), (1e6, 'M')] {
        if value >= from * 0.9995 {
            let scaled = value / from;
            let decimals = if scaled < 9.95 { 2 } else { usize::from(scaled < 99.95) };
            return format!("{scaled:.decimals$}{prefix}");
        }
    }
    format!("{:.0}k", value / 1e3)
}

impl Sheet {
    /// Sorts by a column: numbers from the largest, words from the first; `reversed` the other way.
    pub fn sort(&mut self, column: usize, reversed: bool) {
        self.rows.sort_by(|a, b| {
            let (Some(a), Some(b)) = (a.get(column), b.get(column)) else { return Ordering::Equal };
            let order = if a.is_text() && b.is_text() { a.order(b) } else { b.order(a) };
            if reversed { order.reverse() } else { order }
        });
    }

    /// The width of each column, so that everything in it can be read.
    pub fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> =
            self.heads.iter().map(|head| head.width.max(head.name.chars().count())).collect();
        for row in self.rows.iter().chain(&self.total) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text().chars().count());
            }
        }
        widths
    }

    /// Returns true when a column is of words.
    pub fn is_of_text(&self, column: usize) -> bool {
        self.rows.iter().chain(&self.total).filter_map(|row| row.get(column)).any(Cell::is_text)
    }

    /// Returns the lines of text, with the heads first and the total last.
    pub fn text(&self) -> String {
        let widths = self.widths();
        let line = |words: &mut dyn Iterator<Item = String>| {
            let mut line = String::new();
            for (column, word) in words.enumerate() {
                let width = widths[column];
                let blank = if column == 0 { "" } else { " " };
                let padded = match self.is_of_text(column) {
                    true => format!("{blank}{word:<width$}"),
                    false => format!("{blank}{word:>width$}"),
                };
                line.push_str(&padded);
            }
            line.trim_end().to_owned() + "\n"
        };
        let mut text = line(&mut self.heads.iter().map(|head| head.name.to_owned()));
        for row in self.rows.iter().chain(&self.total) {
            text.push_str(&line(&mut row.iter().map(Cell::text)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let row = |name: &str, value| vec![Cell::Text(name.to_owned()), value];
        Sheet {
            heads: vec![Head { name: "name", width: 4 }, Head { name: "rate", width: 6 }],
            rows: vec![
                row("b", Cell::Number(2.0)),
                row("a-long-name", Cell::Missing),
                row("a", Cell::Number(1_500_000.0)),
            ],
            total: Some(row("all", Cell::Missing)),
        }
    }

    #[test]
    fn numbers_are_sorted_from_the_largest_and_words_from_the_first() {
        let names =
            |sheet: &Sheet| -> Vec<String> { sheet.rows.iter().map(|row| row[0].text()).collect() };
        let mut sheet = sheet();
        sheet.sort(1, false);
        assert_eq!(names(&sheet), ["a", "b", "a-long-name"], "what is missing comes last");
        sheet.sort(1, true);
        assert_eq!(names(&sheet), ["a-long-name", "b", "a"]);
        sheet.sort(0, false);
        assert_eq!(names(&sheet), ["a", "a-long-name", "b"]);
        sheet.sort(9, false);
    }

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let expected = "name          rate\nb                2\na-long-name      -\n\
                        a            1.50M\nall              -\n";
        assert_eq!(sheet().text(), expected);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.04, "0.0"),
            (2.0, "2"),
            (9.96, "10"),
            (99_999.0, "99999"),
            (123_400.0, "123k"),
            (999_600.0, "1.00M"),
            (12_340_000.0, "12.3M"),
            (5e9, "5.00G"),
            (123e12, "123T"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
