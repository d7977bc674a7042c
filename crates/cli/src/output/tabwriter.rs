//! Text in aligned columns, by the rules of Go's `text/tabwriter`, so that what we print lines up
//! exactly as Velero's output does.
//!
//! A tab ends a cell. Cells of one column are made equally wide over a run of consecutive lines that
//! all have that column; the last cell of a line has no tab and counts for nothing. A line without
//! tabs ends all columns.

/// Aligns text once all of it is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TabWriter {
    /// The narrowest a column may be.
    pub(crate) min_width: usize,
    /// Spaces after the widest cell of a column.
    pub(crate) padding: usize,
}

impl TabWriter {
    /// How `describe` aligns.
    pub(crate) const DESCRIBE: Self = Self {
        min_width: 0,
        padding: 2,
    };
    /// How tables are aligned.
    pub(crate) const TABLE: Self = Self {
        min_width: 6,
        padding: 3,
    };

    /// The text with its tabs turned into spaces.
    pub(crate) fn align(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() * 2);
        let mut block: Vec<Vec<&str>> = Vec::new();
        let mut lines = text.split('\n').peekable();
        while let Some(line) = lines.next() {
            let is_last = lines.peek().is_none();
            let cells: Vec<&str> = line.split('\t').collect();
            let ends_columns = cells.len() == 1;
            block.push(cells);
            if ends_columns || is_last {
                self.format(&block, &mut Vec::new(), &mut out);
                block.clear();
                if is_last {
                    // What follows the last newline is a line of its own only if there is something.
                    out.pop();
                }
            }
        }
        out
    }

    /// Writes lines whose first columns have these widths; finds the next column where lines have one.
    fn format(self, lines: &[Vec<&str>], widths: &mut Vec<usize>, out: &mut String) {
        let column = widths.len();
        let has_column = |line: &Vec<&str>| column + 1 < line.len();
        let mut from = 0;
        let mut at = 0;
        while at < lines.len() {
            if !has_column(&lines[at]) {
                at += 1;
                continue;
            }
            write_lines(&lines[from..at], widths, out);
            from = at;
            let run = lines[at..].iter().take_while(|l| has_column(l));
            let (mut width, mut count) = (self.min_width, 0);
            for line in run {
                width = width.max(line[column].chars().count() + self.padding);
                count += 1;
            }
            at += count;
            widths.push(width);
            self.format(&lines[from..at], widths, out);
            widths.pop();
            from = at;
        }
        write_lines(&lines[from..], widths, out);
    }
}

fn write_lines(lines: &[Vec<&str>], widths: &[usize], out: &mut String) {
    for line in lines {
        for (at, cell) in line.iter().enumerate() {
            out.push_str(cell);
            if let Some(width) = widths.get(at) {
                let pad = width.saturating_sub(cell.chars().count());
                out.extend(std::iter::repeat_n(' ', pad));
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::TabWriter;

    #[test]
    fn columns_are_as_wide_as_their_run_of_lines() {
        for (given, wanted) in [
            ("a:\tb\n", "a:  b\n"),
            ("a:\tb\nlonger:\tc\n", "a:       b\nlonger:  c\n"),
            ("a:\tb\n\nlonger:\tc\n", "a:  b\n\nlonger:  c\n"),
            ("H:\n\tx:\t1\n\tlong:\t2\n", "H:\n  x:     1\n  long:  2\n"),
            ("H:\t<none>\n", "H:  <none>\n"),
            // A lone tab keeps the columns of its neighbours apart, and leaves spaces.
            ("\ta:\tb\n\t\n\tlonger:\tc\n", "  a:  b\n  \n  longer:  c\n"),
            ("no newline\tx", "no newline  x"),
            ("", ""),
        ] {
            assert_eq!(TabWriter::DESCRIBE.align(given), wanted, "{given:?}");
        }
    }

    #[test]
    fn an_empty_last_cell_leaves_the_padding_of_the_one_before() {
        assert_eq!(
            TabWriter::TABLE.align("NAME\tDEFAULT\na\t\n"),
            "NAME   DEFAULT\na      \n"
        );
        assert_eq!(
            TabWriter::TABLE.align("é\tx\nab\ty\n"),
            "é     x\nab    y\n"
        );
    }
}
