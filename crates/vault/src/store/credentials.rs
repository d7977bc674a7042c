//! The two formats that credentials come in: INI profiles (AWS) and `NAME=value` lines (Azure).

use std::collections::BTreeMap;

use bowline_api::StringMap;

/// The profiles of an AWS credentials or config file, by name; `[profile x]` is `x`.
///
/// Names of keys are in lower case. Lines that are no pair, and indented ones, which belong to
/// settings that nobody here needs, are passed over.
pub(super) fn profiles(text: &str) -> BTreeMap<String, StringMap> {
    let mut profiles: BTreeMap<String, StringMap> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let is_indented = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.split(']').next().unwrap_or_default().trim();
            let name = name.strip_prefix("profile ").unwrap_or(name).trim();
            profiles.entry(name.to_owned()).or_default();
            current = Some(name.to_owned());
            continue;
        }
        let (Some(profile), Some((key, value))) = (&current, line.split_once('=')) else {
            continue;
        };
        let settings = profiles.entry(profile.clone()).or_default();
        let key = key.trim().to_ascii_lowercase();
        // Secrets pasted with indentation are common; nested settings (`s3 =`) never repeat a key
        // that was set before.
        if is_indented && settings.contains_key(&key) {
            continue;
        }
        let value = value.split(" #").next().unwrap_or_default().trim();
        settings.insert(key, value.to_owned());
    }
    profiles
}

/// The variables of an env file: `NAME=value`, optionally after `export`, optionally quoted.
pub(super) fn variables(text: &str) -> StringMap {
    text.trim_start_matches('\u{feff}')
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let line = line.strip_prefix("export ").unwrap_or(line);
            let (name, value) = line.split_once('=').or_else(|| line.split_once(": "))?;
            Some((name.trim().to_owned(), unquoted(value.trim())))
        })
        .collect()
}

fn unquoted(value: &str) -> String {
    for quote in ['"', '\''] {
        if let Some(rest) = value.strip_prefix(quote)
            && let Some((inside, _)) = rest.split_once(quote)
        {
            return inside.to_owned();
        }
    }
    let value = value.split(" #").next().unwrap_or_default();
    value.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_as_aws_writes_them() {
        let text = "\u{feff}# comment\nstray=1\n[default]\r\naws_access_key_id = AK\r\n\
            aws_secret_access_key=a+b/c==\n; more\n[ profile other ]\n  AWS_Session_Token = t#1 # x\n\
            role_arn=arn:aws:iam::1:role/r\nnonsense\n";
        let found = profiles(text);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["default", "other"]);
        assert_eq!(found["default"]["aws_access_key_id"], "AK");
        assert_eq!(found["default"]["aws_secret_access_key"], "a+b/c==");
        assert_eq!(found["other"]["aws_session_token"], "t#1");
        assert_eq!(found["other"]["role_arn"], "arn:aws:iam::1:role/r");
    }

    #[test]
    fn env_files_are_read_with_and_without_quotes() {
        let text = "# x\nAZURE_TENANT_ID=t\nexport AZURE_CLIENT_ID = \"c d\"\n\
            AZURE_CLIENT_SECRET='s#=1' # why\nKEY=a==  # tail\n\nnothing\n";
        let found: Vec<_> = variables(text).into_iter().collect();
        let expected = [
            ("AZURE_CLIENT_ID", "c d"),
            ("AZURE_CLIENT_SECRET", "s#=1"),
            ("AZURE_TENANT_ID", "t"),
            ("KEY", "a=="),
        ];
        assert_eq!(
            found,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }
}
