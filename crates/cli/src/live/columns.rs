//! Tables of text.

/// Where the text of a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// Returns the rows below each other in columns as wide as their widest text, two spaces between.
pub fn columns(sides: &[Side], rows: &[Vec<String>]) -> String {
    let width = |at: usize| {
        rows.iter().filter_map(|row| row.get(at)).map(|text| text.chars().count()).max()
    };
    let widths: Vec<usize> = (0..sides.len()).map(|at| width(at).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).zip(sides).map(|((cell, &width), side)| match side {
            Side::Left => format!("{cell:<width$}"),
            Side::Right => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns a row of texts.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

/// Returns a time for people: `12.3 s`, `4 min`, `3 h`, `2 d`.
pub fn duration(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        ..120.0 => format!("{seconds:.1} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} d", seconds / 86_400.0),
    }
}

/// Returns a number of bytes for people: `17 B`, `1.5 KiB`, `256.0 MiB`.
pub fn bytes(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            let digits = usize::from(unit != "B");
            return format!("{size:.digits$} {unit}");
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_text() {
        let rows = [row(["link", "packets"]), row(["ms0", "7"])];
        assert_eq!(columns(&[Side::Left, Side::Right], &rows), "link  packets\nms0         7\n");
    }

    #[test]
    fn numbers_are_for_people() {
        assert_eq!([17, 1536, 268_435_456].map(bytes), ["17 B", "1.5 KiB", "256.0 MiB"]);
        assert_eq!([1_500_000_000, 240_000_000_000].map(duration), ["1.5 s", "4 min"]);
    }
}
