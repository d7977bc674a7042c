//! `velero.io/service-account`: the token that Kubernetes made for an account stays behind.

use bowline_api::v1::Restore;
use serde_json::Value;

use super::{Change, Executed, items, retain_items};
use crate::action::{Refused, text};

pub(super) const ACTION: Change = Change {
    name: "velero.io/service-account",
    kinds: &["serviceaccounts"],
    concerns: |account| !items(account, "/secrets").is_empty(),
    change,
};

/// Kubernetes made one token for each account, and listed it last of those with such a name.
fn change(mut account: Value, _: &Value, _: &Restore) -> Result<Executed, Refused> {
    let prefix = format!("{}-token-", text(&account, "/metadata/name"));
    let is_token = |secret: &Value| text(secret, "/name").starts_with(&prefix);
    let last = items(&account, "/secrets").iter().rposition(is_token);
    if last.is_some() {
        let mut place = 0..;
        retain_items(&mut account, "secrets", |_| place.next() != last);
    }
    Ok(account.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_token_goes() {
        for (secrets, left) in [
            (
                vec!["web-token-1", "web-token-2", "mine"],
                json!([{"name": "web-token-1"}, {"name": "mine"}]),
            ),
            (vec!["web-token-1"], Value::Null),
            (vec!["other-token-1"], json!([{"name": "other-token-1"}])),
        ] {
            let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
            let account = json!({"metadata": {"name": "web"}, "secrets": secrets});
            let executed = change(account.clone(), &account, &Restore::default()).unwrap();
            assert_eq!(executed.object["secrets"], left);
        }
    }
}
