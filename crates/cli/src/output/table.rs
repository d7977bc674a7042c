//! Tables as kubectl prints them: a heading in capitals, columns three spaces apart, and label
//! columns on demand.

use std::collections::BTreeMap;

use super::{TableArgs, tabwriter::TabWriter};

/// One line of a table, and the labels of the object it is about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// The cells, one per column.
    pub(crate) cells: Vec<String>,
    /// The object's labels.
    pub(crate) labels: BTreeMap<String, String>,
}

/// The table as text; nothing at all if there are no rows.
pub(crate) fn render(columns: &[&str], rows: &[Row], args: &TableArgs) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut heading: Vec<String> = columns.iter().map(|name| name.to_uppercase()).collect();
    heading.extend(args.label_columns().map(|key| {
        let short = key.rsplit('/').next().unwrap_or(key);
        short.to_uppercase()
    }));
    if args.show_labels {
        heading.push("LABELS".to_owned());
    }
    let mut text = heading.join("\t") + "\n";
    for row in rows {
        let mut cells: Vec<String> = row.cells.iter().map(|cell| one_line(cell)).collect();
        cells.extend(
            args.label_columns()
                .map(|key| row.labels.get(key).cloned().unwrap_or_default()),
        );
        if args.show_labels {
            cells.push(all_labels(&row.labels));
        }
        text += &cells.join("\t");
        text.push('\n');
    }
    TabWriter::TABLE.align(&text)
}

/// Cut at the first line break, and without what a terminal would take for a command.
fn one_line(cell: &str) -> String {
    let end = cell.find(['\n', '\r', '\u{c}']);
    let kept = cell[..end.unwrap_or(cell.len())]
        .replace('\u{1b}', "^[")
        .replace('\t', " ");
    match end {
        Some(_) => kept + "...",
        None => kept,
    }
}

fn all_labels(labels: &BTreeMap<String, String>) -> String {
    if labels.is_empty() {
        return "<none>".to_owned();
    }
    let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str], labels: &[(&str, &str)]) -> Row {
        Row {
            cells: cells.iter().map(|&c| c.to_owned()).collect(),
            labels: labels
                .iter()
                .map(|&(k, v)| (k.to_owned(), v.to_owned()))
                .collect(),
        }
    }

    #[test]
    fn no_rows_no_heading() {
        assert_eq!(render(&["Name"], &[], &TableArgs::default()), "");
    }

    #[test]
    fn cells_are_one_line_and_labels_come_last() {
        let args = TableArgs {
            label_columns: vec!["x/team".to_owned()],
            show_labels: true,
            ..Default::default()
        };
        let rows = [
            row(&["a", "two\nlines"], &[("x/team", "red"), ("b", "c")]),
            row(&["\u{1b}[1mb", ""], &[]),
        ];
        assert_eq!(
            render(&["Name", "Queue Position"], &rows, &args),
            "NAME     QUEUE POSITION   TEAM   LABELS\n\
             a        two...           red    b=c,x/team=red\n\
             ^[[1mb                           <none>\n"
        );
    }
}
