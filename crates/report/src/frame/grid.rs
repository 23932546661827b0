//! A table of a page and of a text.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent};
use millstream_foreign::{markup as escape, shown};

use super::class_of;

/// Returns the class of a stack of a comparison, by its place.
pub fn of_place(place: usize) -> &'static str {
    ["t0", "t1", "t2", "t3"][place % 4]
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// Its subject, on a page.
    caption: String,
    columns: Vec<Column>,
    rows: Vec<Row>,
}

/// A column of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    name: String,
    help: String,
    class: &'static str,
    is_number: bool,
}

/// A row, with its class on a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// `head`, `invalid`, `dim`, or nothing.
    pub class: &'static str,
    /// The cells, of which the first names the row.
    pub cells: Vec<Cell>,
}

/// A place in a table.
#[derive(Clone, Debug, Default, PartialEq)]
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

    fn markup(&self) -> String {
        let Self { text, more, markup, .. } = self;
        let more = match more.as_str() {
            "" => String::new(),
            more => format!("<br><span class=\"dim\">{}</span>", escape(more)),
        };
        format!("{markup}{}{more}", escape(text))
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

    pub(super) fn markup(&self, out: &mut String) {
        let number = |at: usize| self.columns.get(at).is_some_and(|column| column.is_number);
        out.push_str(&format!(
            "<div class=\"scroll\"><table>\n<caption>{}</caption>\n<thead><tr>",
            escape(&self.caption)
        ));
        for (at, Column { name, help, class, .. }) in self.columns.iter().enumerate() {
            let class = class_of(if number(at) { "r" } else { class });
            let help =
                if help.is_empty() { "".into() } else { format!(" title=\"{}\"", escape(help)) };
            out.push_str(&format!("<th scope=\"col\"{class}{help}>{}</th>", escape(name)));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for Row { class, cells } in &self.rows {
            out.push_str(&format!("<tr{}>", class_of(class)));
            for (at, cell) in cells.iter().enumerate() {
                let class =
                    if number(at) { format!("r {}", cell.class) } else { cell.class.to_owned() };
                let (open, close) = if at == 0 { ("th scope=\"row\"", "th") } else { ("td", "td") };
                let class = class_of(class.trim_end());
                out.push_str(&format!("<{open}{class}>{}</{close}>", cell.markup()));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n</table></div>\n");
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
