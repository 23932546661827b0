//! A table of a page and of a text.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent};
use millstream_foreign::shown;
use serde::Serialize;

/// Returns the class of a stack of a comparison, by its place.
pub fn of_place(place: usize) -> &'static str {
    ["t0", "t1", "t2", "t3"][place % 4]
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Grid {
    /// Its subject, on a page.
    caption: String,
    columns: Vec<Column>,
    rows: Vec<Row>,
}

/// A column of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Column {
    name: String,
    help: String,
    class: &'static str,
    is_number: bool,
}

/// A row, with its class on a page.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// `head`, `invalid`, `dim`, or nothing.
    pub class: &'static str,
    /// The cells, of which the first names the row.
    pub cells: Vec<Cell>,
}

/// A place in a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    text: String,
    class: &'static str,
    /// Small print of a page.
    more: String,
    /// A drawing of a page.
    markup: String,
}

impl Column {
    /// Returns a column; the name of one of numbers begins with `>`.
    pub fn new(name: &str) -> Self {
        let number = name.strip_prefix('>');
        let is_number = number.is_some();
        Self { name: number.unwrap_or(name).to_owned(), is_number, ..Self::default() }
    }

    /// Returns the column with a sentence on what it is of.
    pub fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: help.into(), ..self }
    }

    /// Returns the column with its head in a class of the page.
    pub fn with_class(self, class: &'static str) -> Self {
        Self { class, ..self }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl From<Vec<Cell>> for Row {
    fn from(cells: Vec<Cell>) -> Self {
        Self { class: "", cells }
    }
}

impl<const N: usize> From<[String; N]> for Row {
    fn from(cells: [String; N]) -> Self {
        cells.map(Cell::from).to_vec().into()
    }
}

impl Cell {
    /// Returns the name of a stack, in its colour.
    pub fn of_stack(place: usize, label: &str) -> Self {
        Self::from(label).with_class(of_place(place))
    }

    /// Returns a drawing, which is on a page alone.
    pub fn drawn(markup: String) -> Self {
        Self { markup, ..Self::default() }
    }

    /// Returns the cell in a class of the page.
    pub fn with_class(self, class: &'static str) -> Self {
        Self { class, ..self }
    }

    /// Returns the cell with small print, which is on a page alone.
    pub fn with_more(self, more: impl Into<String>) -> Self {
        Self { more: more.into(), ..self }
    }
}

impl Grid {
    /// Returns a table without rows; the names of columns are those of [`Column::new`].
    pub fn new<'n>(caption: impl Into<String>, columns: impl IntoIterator<Item = &'n str>) -> Self {
        let columns = columns.into_iter().map(Column::new).collect();
        Self { caption: caption.into(), columns, rows: Vec::new() }
    }

    /// Returns the table with more columns.
    pub fn columns(mut self, columns: impl IntoIterator<Item = Column>) -> Self {
        self.columns.extend(columns);
        self
    }

    /// Returns the table with more rows.
    pub fn rows<T: Into<Row>>(mut self, rows: impl IntoIterator<Item = T>) -> Self {
        self.rows.extend(rows.into_iter().map(Into::into));
        self
    }

    /// Returns true without a row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the lines of a text.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table
            .load_preset(NOTHING)
            .set_style(TableComponent::HeaderLines, '─')
            .set_style(TableComponent::MiddleHeaderIntersections, '─')
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(self.columns.iter().map(|column| shown(&column.name)));
        for row in &self.rows {
            table.add_row(row.cells.iter().map(|cell| shown(&cell.text)));
        }
        for (at, column) in table.column_iter_mut().enumerate() {
            // A blank is between columns anyway.
            column.set_padding((0, 1));
            if self.columns.get(at).is_some_and(|column| column.is_number) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines = table.to_string();
        lines.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }
}
