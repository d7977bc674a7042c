//! Refusals, as the API server spells them.

use serde_json::{Value, json};

/// A refused request: what goes into the `Status` body.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// The HTTP code.
    pub code: u16,
    /// One word for programs, `NotFound`.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// What it is about.
    pub details: Option<Value>,
}

/// One thing wrong with an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// One word for programs, `FieldValueInvalid`.
    pub reason: &'static str,
    /// A sentence for people, without the field's path.
    pub message: String,
    /// The path of the field.
    pub field: String,
}

/// The outcome of a request.
pub(crate) type Result<T> = std::result::Result<T, Status>;

impl Status {
    /// A refusal without details.
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
        }
    }

    /// 400, for requests that make no sense.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 422, for objects that break rules: `Kind "name" is invalid: …`.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let mut said: Vec<String> = Vec::new();
        for cause in causes {
            let one = format!("{}: {}", cause.field, cause.message);
            if !said.contains(&one) {
                said.push(one);
            }
        }
        let said = match said.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let full_kind = match group {
            "" => kind.to_owned(),
            group => format!("{kind}.{group}"),
        };
        let mut details = json!({
            "kind": kind,
            "causes": causes.iter().map(|c| json!({
                "reason": c.reason,
                "message": c.message,
                "field": c.field,
            })).collect::<Vec<_>>(),
        });
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !group.is_empty() {
            details["group"] = group.into();
        }
        Self {
            code: 422,
            reason: "Invalid",
            message: format!("{full_kind} \"{name}\" is invalid: {said}"),
            details: Some(details),
        }
    }

    /// 422, for options of a request that make no sense.
    pub(crate) fn options(kind: &str, reason: &'static str, field: &str, why: &str) -> Self {
        let cause = Cause {
            reason,
            message: why.to_owned(),
            field: field.to_owned(),
        };
        Self::invalid("meta.k8s.io", kind, "", &[cause])
    }

    /// An error that the real server does not dress up.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// The body of the answer.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            value["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            value["details"] = details.clone();
        }
        value
    }
}
