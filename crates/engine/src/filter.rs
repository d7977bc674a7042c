//! Include and exclude lists, and the namespaces that they choose.
//!
//! Lists hold names or globs (`*`, `?`, `[..]`, `{a,b}`); an exclude beats an include. What the
//! names mean (short names, scopes) is decided before they come here, by discovery.

use std::collections::{BTreeSet, HashSet};

use globset::{GlobBuilder, GlobMatcher};

/// Stands for everything when it is an item of its own.
const ALL: &str = "*";

/// An include list and an exclude list.
#[derive(Debug, Clone, Default)]
pub struct Lists {
    includes: Patterns,
    excludes: Patterns,
}

impl Lists {
    /// Lists of names and globs; what is no sound glob matches literally.
    pub fn new(
        includes: impl IntoIterator<Item = impl AsRef<str>>,
        excludes: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Self {
        Self {
            includes: Patterns::new(includes),
            excludes: Patterns::new(excludes),
        }
    }

    /// Whether the item passes: no exclude matches, and an include does or there are none.
    #[must_use]
    pub fn includes(&self, item: &str) -> bool {
        !self.excludes(item) && (self.includes.texts.is_empty() || self.names(item))
    }

    /// Whether an exclude matches the item.
    #[must_use]
    pub fn excludes(&self, item: &str) -> bool {
        self.excludes.matches(item)
    }

    /// Whether an include matches the item, excluded or not; an empty list names nothing.
    #[must_use]
    pub fn names(&self, item: &str) -> bool {
        self.includes.matches(item)
    }

    /// Whether the lists leave nothing out: no excludes, and no includes but `*`.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.excludes.texts.is_empty() && self.includes.texts.iter().all(|t| t == ALL)
    }

    /// Adds an include unless one list or the other matches it already.
    pub fn include_if_new(&mut self, item: &str) {
        if !self.names(item) && !self.excludes(item) {
            self.includes.push(item);
        }
    }

    /// Adds an exclude unless one list or the other matches it already.
    pub fn exclude_if_new(&mut self, item: &str) {
        if !self.names(item) && !self.excludes(item) {
            self.excludes.push(item);
        }
    }

    /// The includes as they were given.
    pub fn included(&self) -> impl Iterator<Item = &str> {
        self.includes.texts.iter().map(String::as_str)
    }

    /// The excludes as they were given.
    pub fn excluded(&self) -> impl Iterator<Item = &str> {
        self.excludes.texts.iter().map(String::as_str)
    }
}

/// One list. Names are looked up, so that a thousand of them cost no more than one; globs are tried
/// one by one.
#[derive(Debug, Clone, Default)]
struct Patterns {
    texts: Vec<String>,
    names: HashSet<String>,
    globs: Vec<Pattern>,
}

impl Patterns {
    fn new(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut patterns = Self::default();
        for text in texts {
            patterns.push(text.as_ref());
        }
        patterns
    }

    fn push(&mut self, text: &str) {
        self.texts.push(text.to_owned());
        let pattern = Pattern::new(text);
        if pattern.is_literal() {
            self.names.insert(pattern.text);
        } else {
            self.globs.push(pattern);
        }
    }

    fn matches(&self, item: &str) -> bool {
        self.names.contains(item) || self.globs.iter().any(|glob| glob.matches(item))
    }
}

/// One name or glob.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    /// None for a plain name, which is the common case and needs no automaton.
    glob: Option<GlobMatcher>,
}

impl Pattern {
    /// The pattern; a text that is no sound glob matches literally.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            glob: compile(text).ok().flatten(),
        }
    }

    /// The pattern, or what is wrong with the glob.
    pub fn strict(text: &str) -> Result<Self, String> {
        Ok(Self {
            text: text.to_owned(),
            glob: compile(text)?,
        })
    }

    /// Whether the item is the name, or fits the glob.
    #[must_use]
    pub fn matches(&self, item: &str) -> bool {
        match &self.glob {
            _ if self.text == ALL => true,
            None => self.text == item,
            Some(glob) => glob.is_match(item),
        }
    }

    /// Whether it is a name and no glob.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.text != ALL && self.glob.is_none()
    }

    /// The text it was made from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The glob of a text, none if it has nothing special in it.
fn compile(text: &str) -> Result<Option<GlobMatcher>, String> {
    if !text.contains(['*', '?', '[', ']', '{', '}', '\\']) {
        return Ok(None);
    }
    GlobBuilder::new(text)
        .literal_separator(false)
        .backslash_escape(true)
        .empty_alternates(true)
        .build()
        .map(|glob| Some(glob.compile_matcher()))
        .map_err(|e| e.kind().to_string())
}

/// What is wrong with the lists of `includedResources` and `excludedResources`.
#[must_use]
pub fn resource_list_errors(includes: &[String], excludes: &[String]) -> Vec<String> {
    let (includes, excludes) = (set(includes), set(excludes));
    let mut errors = Vec::new();
    if includes.len() > 1 && includes.contains(ALL) {
        errors.push(STAR_INCLUDED_WITH_OTHERS.to_owned());
    }
    if excludes.contains(ALL) {
        errors.push("excludes list cannot contain '*'".to_owned());
    }
    errors.extend(overlap(&includes, &excludes));
    errors
}

/// What is wrong with the lists of one scope (`includedClusterScopedResources` and so on).
#[must_use]
pub fn scoped_list_errors(includes: &[String], excludes: &[String]) -> Vec<String> {
    let (includes, excludes) = (set(includes), set(excludes));
    let mut errors = Vec::new();
    if includes.len() > 1 && includes.contains(ALL) {
        errors.push(STAR_INCLUDED_WITH_OTHERS.to_owned());
    }
    if excludes.len() > 1 && excludes.contains(ALL) {
        errors.push(
            "excludes list must either contain '*' only, or a non-empty list of items".to_owned(),
        );
    }
    if !includes.is_empty() && excludes.contains(ALL) {
        errors.push("when exclude is '*', include cannot have value".to_owned());
    }
    errors.extend(overlap(&includes, &excludes));
    errors
}

/// What is wrong with the lists of namespaces: the lists as such, then each name, sorted.
#[must_use]
pub fn namespace_list_errors(includes: &[String], excludes: &[String]) -> Vec<String> {
    let mut errors = resource_list_errors(includes, excludes);
    for name in set(includes).into_iter().chain(set(excludes)) {
        errors.extend(namespace_errors(name));
    }
    errors
}

const STAR_INCLUDED_WITH_OTHERS: &str =
    "includes list must either contain '*' only, or a non-empty list of items";

fn set(items: &[String]) -> BTreeSet<&str> {
    items.iter().map(String::as_str).collect()
}

fn overlap(includes: &BTreeSet<&str>, excludes: &BTreeSet<&str>) -> Vec<String> {
    excludes
        .intersection(includes)
        .map(|item| format!("excludes list cannot contain an item in the includes list: {item}"))
        .collect()
}

/// An empty name stands for "no namespace" and is let through, as Velero does.
pub(crate) fn namespace_errors(name: &str) -> Vec<String> {
    if name.is_empty() {
        return Vec::new();
    }
    if let Err(why) = namespace_pattern(name) {
        return vec![why.to_owned()];
    }
    let plain = name.replace(['*', '?', '[', ']'], "x");
    let mut errors = Vec::new();
    if plain.len() > 63 {
        errors.push("must be no more than 63 characters");
    }
    if !is_label(&plain) {
        errors.push(if plain.split('.').all(is_label) {
            "must not contain dots"
        } else {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
             and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
             regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        });
    }
    errors
        .into_iter()
        .map(|why| format!("invalid namespace {name:?}: {why}"))
        .collect()
}

/// Whether a text has the letters of a DNS label, whatever its length.
pub(crate) fn is_label(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(letter)
        && text.ends_with(letter)
        && text.chars().all(|c| c == '-' || letter(c))
}

/// Whether a namespace pattern keeps to `*`, `?` and `[..]`.
pub(crate) fn namespace_pattern(pattern: &str) -> Result<(), &'static str> {
    if pattern.contains(['|', '(', ')', '!', '{', '}', ',']) {
        return Err("wildcard pattern contains unsupported characters: |, (, ), !, {, }, ,");
    }
    if pattern.contains("**") {
        return Err("wildcard pattern contains consecutive asterisks (only single * allowed)");
    }
    let mut rest = pattern;
    while let Some(at) = rest.find(['[', ']']) {
        if rest[at..].starts_with(']') {
            return Err("wildcard pattern contains unmatched closing bracket ']'");
        }
        let inside = &rest[at + 1..];
        match inside.find(']') {
            None => return Err("wildcard pattern contains unclosed bracket '['"),
            Some(0) => return Err("wildcard pattern contains empty bracket pattern '[]'"),
            Some(end) => rest = &inside[end + 1..],
        }
    }
    Ok(())
}

/// The namespaces of a backup: its lists, with globs turned into the names they match today.
#[derive(Debug, Clone, Default)]
pub struct Namespaces {
    lists: Lists,
    /// Globs were given and nothing is left of the includes: that means none, not all.
    is_nothing: bool,
    is_everything: bool,
    missing: Vec<String>,
}

impl Namespaces {
    /// Whether objects of this namespace belong to the backup.
    #[must_use]
    pub fn includes(&self, namespace: &str) -> bool {
        !self.is_nothing && self.lists.includes(namespace)
    }

    /// Whether no namespace is left out.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.is_everything
    }

    /// The live namespaces that are included, sorted.
    #[must_use]
    pub fn chosen(&self, live: &[&str]) -> Vec<String> {
        let chosen: BTreeSet<&str> = live.iter().copied().filter(|n| self.includes(n)).collect();
        chosen.into_iter().map(str::to_owned).collect()
    }

    /// Includes given by name that do not exist, sorted.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }
}

/// Finds the namespaces that the lists choose among the live ones.
///
/// Globs are expanded to names unless the includes are empty or contain `*`: then the includes are
/// "all", and excludes that are globs keep matching as such.
pub fn resolve(
    includes: &[String],
    excludes: &[String],
    live: &[&str],
) -> Result<Namespaces, String> {
    let all = includes.is_empty() || includes.iter().any(|item| item == ALL);
    let has_globs = includes.iter().chain(excludes).any(|item| is_glob(item));
    let (includes, excludes, expanded) = if !all && has_globs {
        (expand(includes, live)?, expand(excludes, live)?, true)
    } else {
        let set = |items: &[String]| items.iter().cloned().collect();
        (set(includes), set(excludes), false)
    };

    let live: BTreeSet<&str> = live.iter().copied().collect();
    let is_nothing = expanded && includes.is_empty();
    let is_everything = excludes.is_empty()
        && !is_nothing
        && (includes.iter().all(|item| item == ALL) || includes.iter().eq(live.iter()));
    let missing = includes
        .iter()
        .filter(|name| *name != ALL && !name.is_empty() && !live.contains(name.as_str()))
        .cloned()
        .collect();
    Ok(Namespaces {
        lists: Lists::new(&includes, &excludes),
        is_nothing,
        is_everything,
        missing,
    })
}

fn is_glob(item: &str) -> bool {
    item.contains(['*', '?', '['])
}

fn expand(items: &[String], live: &[&str]) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for item in items {
        namespace_pattern(item)?;
        if is_glob(item) {
            let pattern = Pattern::strict(item)?;
            let matched = live.iter().filter(|name| pattern.matches(name));
            names.extend(matched.map(|name| (*name).to_owned()));
        } else {
            names.insert(item.clone());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
