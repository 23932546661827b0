//! The page: everything of an experiment in one file without network or script.

use super::frame::Frame;
use super::html::data;
use super::model::Model;
use super::room::{Detailed, PAGE_BYTES, Room, Scope};
use super::sections;

/// The smallest part of the ordinary room that is tried, and the least that is left for the
/// records.
const LEAST_PART: usize = 64;
const DATA_BYTES: usize = 100_000;
/// The end of the page, before which the records stand.
const ENDS: &str = "</body>";

/// The whole page. Where it would become too large, everything of which there is much has less
/// room, until it is not.
pub(super) fn render(model: &Model<'_>) -> serde_json::Result<String> {
    let detailed = Detailed::of(model);
    model.make_cells();
    let (mut part, mut page) = (1, String::new());
    while part <= LEAST_PART {
        let scope = Scope { model, detailed: &detailed, room: Room::of(part) };
        let title = model.experiment.name.clone();
        page = Frame { title, sections: sections::all(scope) }.page();
        if page.len() <= PAGE_BYTES - DATA_BYTES {
            break;
        }
        part *= 2;
    }
    let left = PAGE_BYTES.saturating_sub(page.len()).min(data::SIZE_BYTES);
    let data = data::embedded(model, &detailed, left)?;
    let data = format!("<script type=\"application/json\" id=\"data\">{data}</script>\n");
    let at = page.rfind(ENDS).unwrap_or(page.len());
    page.insert_str(at, &data);
    Ok(page)
}

/// The text of a terminal.
pub(super) fn text(model: &Model<'_>) -> String {
    let room = Room { lines: usize::MAX, ..Room::of(1) };
    let scope = Scope { model, detailed: &Detailed::default(), room };
    Frame { title: String::new(), sections: sections::all(scope) }.text()
}
