//! Tables for lists, their errors, and the choice of namespaces.

use super::*;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn an_exclude_beats_an_include_and_no_includes_mean_all() {
    for (includes, excludes, item, includes_it, excludes_it, names_it) in [
        ("", "", "pods", true, false, false),
        ("*", "", "pods", true, false, true),
        ("pods", "", "pods", true, false, true),
        ("pods", "", "services", false, false, false),
        ("pods", "pods", "pods", false, true, true),
        ("", "pods", "pods", false, true, false),
        ("", "pods", "services", true, false, false),
        ("*", "*", "pods", false, true, true),
        ("", "*", "pods", false, true, false),
        (
            "*.example.com",
            "",
            "widgets.example.com",
            true,
            false,
            true,
        ),
        (
            "*.example.com",
            "",
            "widgets.example.org",
            false,
            false,
            false,
        ),
        (
            "*.example.com",
            "w?dgets.*",
            "widgets.example.com",
            false,
            true,
            true,
        ),
        ("{pods,services}", "", "services", true, false, true),
        ("[ps]*", "", "services", true, false, true),
        ("[ps]*", "", "configmaps", false, false, false),
        ("pod*", "", "a/pods", false, false, false),
        ("*pods", "", "a/pods", true, false, true),
        ("[bad", "", "[bad", true, false, true),
        ("[bad", "", "b", false, false, false),
        ("pods.v1", "", "podsxv1", false, false, false),
    ] {
        let lists = Lists::new(words(includes), words(excludes));
        assert_eq!(
            (
                lists.includes(item),
                lists.excludes(item),
                lists.names(item)
            ),
            (includes_it, excludes_it, names_it),
            "{includes:?} {excludes:?} {item}"
        );
    }
}

#[test]
fn everything_means_no_excludes_and_no_includes_but_a_star() {
    for (includes, excludes, everything) in [
        ("", "", true),
        ("*", "", true),
        ("* *", "", true),
        ("* pods", "", false),
        ("pods", "", false),
        ("", "pods", false),
        ("*", "pods", false),
    ] {
        let lists = Lists::new(words(includes), words(excludes));
        assert_eq!(
            lists.is_everything(),
            everything,
            "{includes:?} {excludes:?}"
        );
    }
}

#[test]
fn items_that_a_list_matches_already_are_not_added() {
    let mut lists = Lists::new(["pods", "cron*"], ["secrets"]);
    for item in ["pods", "cronjobs.batch", "secrets", "services", "services"] {
        lists.include_if_new(item);
    }
    for item in ["services", "secrets", "events"] {
        lists.exclude_if_new(item);
    }
    assert_eq!(
        lists.included().collect::<Vec<_>>(),
        ["pods", "cron*", "services"]
    );
    assert_eq!(lists.excluded().collect::<Vec<_>>(), ["secrets", "events"]);
}

#[test]
fn a_strict_pattern_says_what_is_wrong() {
    assert!(Pattern::strict("app-*").is_ok());
    assert!(Pattern::strict("app").unwrap().is_literal());
    assert!(!Pattern::strict("*").unwrap().is_literal());
    for text in ["[a", "{a", "a}"] {
        assert!(Pattern::strict(text).is_err(), "{text}");
    }
}

const STAR: &str = "includes list must either contain '*' only, or a non-empty list of items";
const NO_STAR: &str = "excludes list cannot contain '*'";
const LONE_STAR: &str = "excludes list must either contain '*' only, or a non-empty list of items";
const STAR_ALONE: &str = "when exclude is '*', include cannot have value";
const POD_TWICE: &str = "excludes list cannot contain an item in the includes list: pods";

#[test]
fn old_style_lists_are_refused_in_velero_s_words() {
    for (includes, excludes, errors) in [
        ("", "", &[][..]),
        ("*", "pods", &[]),
        ("* *", "", &[]),
        ("* pods", "", &[STAR]),
        ("", "*", &[NO_STAR]),
        ("pods", "pods", &[POD_TWICE]),
        ("po*", "pods", &[]),
        (
            "* pods",
            "* pods",
            &[
                STAR,
                NO_STAR,
                "excludes list cannot contain an item in the includes list: *",
                POD_TWICE,
            ],
        ),
    ] {
        assert_eq!(
            resource_list_errors(&words(includes), &words(excludes)),
            errors,
            "{includes:?} {excludes:?}"
        );
    }
}

#[test]
fn new_style_lists_are_refused_in_velero_s_words() {
    for (includes, excludes, errors) in [
        ("", "", &[][..]),
        ("", "*", &[]),
        ("* pods", "", &[STAR]),
        ("", "* pods", &[LONE_STAR]),
        ("pods", "*", &[STAR_ALONE]),
        ("pods", "pods", &[POD_TWICE]),
        (
            "*",
            "*",
            &[
                STAR_ALONE,
                "excludes list cannot contain an item in the includes list: *",
            ],
        ),
    ] {
        assert_eq!(
            scoped_list_errors(&words(includes), &words(excludes)),
            errors,
            "{includes:?} {excludes:?}"
        );
    }
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

#[test]
fn namespace_names_and_patterns_are_refused_in_velero_s_words() {
    let characters = "wildcard pattern contains unsupported characters: |, (, ), !, {, }, ,";
    let long = "a".repeat(64);
    for (name, error) in [
        ("web", None),
        ("", None),
        ("*", None),
        ("web-*", None),
        ("w?b", None),
        ("[wx]eb", None),
        ("a|b", Some(characters.to_owned())),
        ("a(b", Some(characters.to_owned())),
        ("a)b", Some(characters.to_owned())),
        ("a!b", Some(characters.to_owned())),
        ("{a,b}", Some(characters.to_owned())),
        ("a,b", Some(characters.to_owned())),
        (
            "a**",
            Some(
                "wildcard pattern contains consecutive asterisks (only single * allowed)"
                    .to_owned(),
            ),
        ),
        (
            "a[]",
            Some("wildcard pattern contains empty bracket pattern '[]'".to_owned()),
        ),
        (
            "a[b",
            Some("wildcard pattern contains unclosed bracket '['".to_owned()),
        ),
        (
            "ab]",
            Some("wildcard pattern contains unmatched closing bracket ']'".to_owned()),
        ),
        (
            "a[b]c]",
            Some("wildcard pattern contains unmatched closing bracket ']'".to_owned()),
        ),
        ("Web", Some(format!("invalid namespace \"Web\": {LABEL}"))),
        ("-web", Some(format!("invalid namespace \"-web\": {LABEL}"))),
        ("web-", Some(format!("invalid namespace \"web-\": {LABEL}"))),
        (
            "we.b",
            Some("invalid namespace \"we.b\": must not contain dots".to_owned()),
        ),
        (
            "we..b",
            Some(format!("invalid namespace \"we..b\": {LABEL}")),
        ),
        (
            &long,
            Some(format!(
                "invalid namespace \"{long}\": must be no more than 63 characters"
            )),
        ),
    ] {
        let list = [name.to_owned()];
        let errors: Vec<String> = error.into_iter().collect();
        assert_eq!(namespace_list_errors(&list, &[]), errors, "{name}");
        if name != "*" {
            assert_eq!(namespace_list_errors(&[], &list), errors, "{name}");
        }
    }
    assert_eq!(
        namespace_list_errors(&words("* web"), &words("web")),
        [
            STAR,
            "excludes list cannot contain an item in the includes list: web"
        ]
    );
}

#[test]
fn namespaces_are_chosen_among_the_live_ones() {
    let live = ["app-1", "app-2", "db"];
    for (includes, excludes, chosen, everything, missing) in [
        ("", "", "app-1 app-2 db", true, ""),
        ("*", "", "app-1 app-2 db", true, ""),
        ("", "db", "app-1 app-2", false, ""),
        ("*", "app-*", "db", false, ""),
        ("", "app-*", "db", false, ""),
        ("app-*", "", "app-1 app-2", false, ""),
        ("app-?", "app-2", "app-1", false, ""),
        ("app-[12]", "", "app-1 app-2", false, ""),
        ("db", "app-*", "db", false, ""),
        ("db app-1", "app-*", "db", false, ""),
        ("gone", "", "", false, "gone"),
        ("db gone", "", "db", false, "gone"),
        ("app-* gone", "", "app-1 app-2", false, "gone"),
        // A pattern that matches nothing means nothing, not everything.
        ("x-*", "", "", false, ""),
        // Every live namespace, by name or by glob, is everything; an exclude glob that matches
        // nothing leaves nothing out.
        ("db app-2 app-1", "", "app-1 app-2 db", true, ""),
        ("app-* d*", "", "app-1 app-2 db", true, ""),
        ("app-* d*", "x-*", "app-1 app-2 db", true, ""),
        ("app-* d*", "gone", "app-1 app-2 db", false, ""),
    ] {
        let namespaces = resolve(&words(includes), &words(excludes), &live).unwrap();
        assert_eq!(
            (
                namespaces.chosen(&live),
                namespaces.is_everything(),
                namespaces.missing()
            ),
            (words(chosen), everything, words(missing).as_slice()),
            "{includes:?} {excludes:?}"
        );
    }
}

#[test]
fn an_empty_cluster_is_everything_to_no_lists_only() {
    assert!(resolve(&[], &[], &[]).unwrap().is_everything());
    assert!(!resolve(&words("x-*"), &[], &[]).unwrap().is_everything());
}

#[test]
fn bad_patterns_do_not_resolve() {
    for pattern in ["a**", "a[", "{a,b}*"] {
        assert!(resolve(&words(pattern), &[], &["a"]).is_err(), "{pattern}");
    }
}
