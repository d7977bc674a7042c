//! The trees that are copied: the same bytes in every run, in two states that differ in a hundredth.

use std::{
    fs::{self, File},
    io::{BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::ValueEnum;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
/// Bytes of one kind, after which another begins, in the one big file.
const STRETCH: u64 = 4 * MIB;
/// One in so many files, or stretches of the big one, is different in the second state.
const CHANGED: u64 = 100;

/// What kind of tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::bench) enum Kind {
    /// 2 GiB of text, of noise and of copies, files of up to 48 MiB
    Mixed,
    /// 100,000 files of up to 8 KiB
    Small,
    /// One file of 4 GiB
    Big,
    /// 1.2 GB in 52,000 files: 50,000 of up to 8 KiB, and 2,000 of up to 1 MiB
    Pod,
}

/// Which of its two states a tree is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    First,
    Changed,
}

/// A tree on the disk.
pub(in crate::bench) struct Tree {
    pub(in crate::bench) folder: PathBuf,
    files: Vec<Piece>,
}

/// A file, or a stretch of the big one.
#[derive(Debug, Clone)]
struct Piece {
    path: PathBuf,
    at: u64,
    size: u64,
    seed: u64,
    is_text: bool,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Small => "small",
            Self::Big => "big",
            Self::Pod => "pod",
        }
    }

    /// What is in it, in the order in which it is written.
    fn pieces(self, scale: f64) -> Vec<Piece> {
        match self {
            Self::Mixed => mixed(scaled(2 * GIB, scale)),
            Self::Small => small(scaled(100_000, scale)),
            Self::Big => big(scaled(4 * GIB, scale)),
            Self::Pod => pod(scaled(52_000, scale)),
        }
    }
}

fn scaled(figure: u64, scale: f64) -> u64 {
    ((figure as f64 * scale) as u64).max(1)
}

/// Files of all sizes; a tenth are copies of one before.
fn mixed(bytes: u64) -> Vec<Piece> {
    let mut random = Random(7);
    let mut pieces: Vec<Piece> = Vec::new();
    let mut total = 0;
    while total < bytes {
        let n = pieces.len();
        let path = PathBuf::from(format!("d{}/d{}/f{n}", n % 7, n / 50));
        let piece = match pieces.get(random.below(n.max(1) as u64) as usize) {
            Some(other) if random.below(10) == 0 => Piece {
                path,
                ..other.clone()
            },
            _ => Piece {
                path,
                at: 0,
                size: match random.below(20) {
                    0 => MIB + random.below(47 * MIB),
                    1..=7 => 64 * KIB + random.below(MIB - 64 * KIB),
                    _ => 1 + random.below(64 * KIB),
                },
                seed: random.next(),
                is_text: random.below(2) == 0,
            },
        };
        total += piece.size;
        pieces.push(piece);
    }
    pieces
}

fn small(files: u64) -> Vec<Piece> {
    let mut random = Random(11);
    let piece = |n| Piece {
        path: PathBuf::from(format!("d{}/d{}/f{n}", n / 10_000, n / 100 % 100)),
        at: 0,
        size: random.below(8 * KIB),
        seed: random.next(),
        is_text: n % 2 == 0,
    };
    (0..files).map(piece).collect()
}

fn pod(files: u64) -> Vec<Piece> {
    let mut random = Random(17);
    let piece = |n| Piece {
        path: PathBuf::from(format!("d{}/d{}/f{n}", n / 10_000, n / 100 % 100)),
        at: 0,
        size: random.below(if n % 26 == 0 { MIB } else { 8 * KIB }),
        seed: random.next(),
        is_text: n % 2 == 0,
    };
    (0..files).map(piece).collect()
}

fn big(bytes: u64) -> Vec<Piece> {
    let mut random = Random(13);
    let stretch = |n| Piece {
        path: PathBuf::from("big"),
        at: n * STRETCH,
        size: STRETCH.min(bytes - n * STRETCH),
        seed: random.next(),
        is_text: n % 2 == 0,
    };
    (0..bytes.div_ceil(STRETCH)).map(stretch).collect()
}

impl Tree {
    /// Writes it, in its first state.
    pub(in crate::bench) fn make(folder: &Path, kind: Kind, scale: f64) -> anyhow::Result<Self> {
        let tree = Self {
            folder: folder.to_owned(),
            files: kind.pieces(scale),
        };
        for piece in &tree.files {
            tree.write(piece, State::First)?;
        }
        Ok(tree)
    }

    /// Brings it into a state by writing what differs.
    pub(super) fn set(&self, state: State) -> anyhow::Result<()> {
        self.changing()
            .try_for_each(|piece| self.write(piece, state))
    }

    /// Takes what is in the files of a copy.
    pub(in crate::bench) fn empty(&self, copy: &Path) -> anyhow::Result<()> {
        for piece in &self.files {
            let path = copy.join(&piece.path);
            File::create(&path).with_context(|| format!("empty {}", path.display()))?;
        }
        Ok(())
    }

    pub(in crate::bench) fn bytes(&self) -> u64 {
        self.files.iter().map(|piece| piece.size).sum()
    }

    pub(in crate::bench) fn count(&self) -> usize {
        let mut paths: Vec<&Path> = self.files.iter().map(|piece| &*piece.path).collect();
        paths.dedup();
        paths.len()
    }

    /// The hundredth, spread evenly; there is always some.
    fn changing(&self) -> impl Iterator<Item = &Piece> {
        let step = usize::try_from(CHANGED).unwrap_or(usize::MAX);
        self.files
            .iter()
            .skip(self.files.len().min(step) / 2)
            .step_by(step)
    }

    fn write(&self, piece: &Piece, state: State) -> anyhow::Result<()> {
        let path = self.folder.join(&piece.path);
        let write = || -> anyhow::Result<()> {
            fs::create_dir_all(path.parent().unwrap_or(&path))?;
            let mut file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)?;
            file.seek(SeekFrom::Start(piece.at))?;
            let mut file = BufWriter::with_capacity(256 << 10, file);
            let seed = match state {
                State::First => piece.seed,
                State::Changed => !piece.seed,
            };
            fill(&mut file, seed, piece.size, piece.is_text)?;
            Ok(file.flush()?)
        };
        write().with_context(|| format!("write {}", path.display()))
    }
}

/// Bytes that depend on the seed alone: words, or noise.
fn fill(to: &mut impl Write, seed: u64, mut left: u64, is_text: bool) -> std::io::Result<()> {
    let mut random = Random(seed);
    while left > 0 {
        let number = random.next();
        let word = if is_text {
            WORDS[(number >> 32) as usize % WORDS.len()].as_bytes()
        } else {
            &number.to_le_bytes()
        };
        let length = left.min(word.len() as u64);
        to.write_all(&word[..length as usize])?;
        left -= length;
    }
    Ok(())
}

const WORDS: [&str; 32] = [
    "anchor ",
    "bight ",
    "bitter ",
    "bollard ",
    "bowline ",
    "bulwark ",
    "cable ",
    "capstan ",
    "cleat ",
    "clove ",
    "coil ",
    "davit ",
    "fathom ",
    "fender ",
    "halyard ",
    "hawser ",
    "hitch ",
    "keel ",
    "knot ",
    "lanyard ",
    "line ",
    "mooring ",
    "oar ",
    "rode ",
    "rudder ",
    "sheet ",
    "shackle\n",
    "splice ",
    "stern ",
    "tackle ",
    "tiller ",
    "winch\n",
];

/// The same numbers everywhere (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ (number >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, State, Tree};
    use crate::bench::volume::same::same;

    #[test]
    fn a_tree_is_the_same_each_time_and_its_states_differ() {
        for (kind, scale) in [
            (Kind::Mixed, 0.01),
            (Kind::Small, 0.002),
            (Kind::Big, 0.002),
            (Kind::Pod, 0.002),
        ] {
            let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let first = Tree::make(one.path(), kind, scale).unwrap();
            let second = Tree::make(two.path(), kind, scale).unwrap();
            assert_eq!(first.bytes(), second.bytes());
            assert_eq!(same(one.path(), two.path(), false).unwrap(), first.bytes());
            second.set(State::Changed).unwrap();
            let error = same(one.path(), two.path(), false).unwrap_err();
            assert!(error.to_string().contains("differs"), "{error:#}");
            second.set(State::First).unwrap();
            same(one.path(), two.path(), false).unwrap();
        }
    }
}
