//! What a call can come to, in Velero's words.

use std::fmt;

use prost::Message;

use crate::wire::{Any, RichStatus, Stack, StackFrame};

pub use tonic::Code;

const STACK: &str = "type.googleapis.com/generated.Stack";

/// What can go wrong with a plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// What the plugin answered.
    #[error(transparent)]
    Status(Status),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How gRPC says that a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The kind of failure; plugins mostly say `Unknown`.
    pub code: Code,
    /// What the plugin says.
    pub message: String,
    /// Where in the plugin the error was made, if it says so.
    pub place: Option<Place>,
}

/// A place in a plugin's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// `file:line`.
    pub file: String,
    /// The function.
    pub function: String,
}

impl Error {
    /// An error in words.
    pub fn new(text: impl ToString) -> Self {
        Self::Other(text.to_string())
    }

    /// What a plugin says that does not have a method.
    #[must_use]
    pub fn unimplemented() -> Self {
        Self::Status(Status {
            code: Code::Unimplemented,
            message: "not implemented".to_owned(),
            place: None,
        })
    }

    /// The code, if it is an answer.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Status(status) => Some(status.code),
            Self::Other(_) => None,
        }
    }

    /// As it goes over the wire.
    pub(crate) fn to_wire(&self) -> tonic::Status {
        match self {
            Self::Other(text) => tonic::Status::new(Code::Unknown, text),
            Self::Status(Status {
                code,
                message,
                place,
            }) => {
                let Some(place) = place else {
                    return tonic::Status::new(*code, message);
                };
                let (file, line) = place.file.rsplit_once(':').unwrap_or((&place.file, ""));
                let stack = Stack {
                    frames: vec![StackFrame {
                        file: file.to_owned(),
                        line: line.parse().unwrap_or_default(),
                        function: place.function.clone(),
                    }],
                };
                let details = RichStatus {
                    code: i32::from(*code),
                    message: message.clone(),
                    details: vec![Any {
                        type_url: STACK.to_owned(),
                        value: stack.encode_to_vec(),
                    }],
                };
                tonic::Status::with_details(*code, message, details.encode_to_vec().into())
            }
        }
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        let details = RichStatus::decode(status.details()).unwrap_or_default();
        let stack = details.details.iter().find(|any| any.type_url == STACK);
        let stack = stack.and_then(|any| Stack::decode(&*any.value).ok());
        let frame = stack.and_then(|stack| stack.frames.into_iter().next());
        Self::Status(Status {
            code: status.code(),
            message: status.message().to_owned(),
            place: frame.map(|frame| Place {
                file: format!("{}:{}", frame.file, frame.line),
                function: frame.function,
            }),
        })
    }
}

/// As Go prints it: this text ends up in statuses and results.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, message) = (name(self.code), &self.message);
        write!(f, "rpc error: code = {code} desc = {message}")
    }
}

impl std::error::Error for Status {}

fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_plugin_says_goes_there_and_back() {
        let said = Error::Status(Status {
            code: Code::Aborted,
            message: "plugin panicked: no".to_owned(),
            place: Some(Place {
                file: "a/b.go:17".to_owned(),
                function: "main.f".to_owned(),
            }),
        });
        assert_eq!(Error::from(said.to_wire()), said);
        assert_eq!(
            said.to_string(),
            "rpc error: code = Aborted desc = plugin panicked: no"
        );
    }

    #[test]
    fn an_error_in_words_is_unknown_on_the_wire() {
        let wire = Error::new("no such volume").to_wire();
        assert_eq!(
            Error::from(wire).to_string(),
            "rpc error: code = Unknown desc = no such volume"
        );
    }
}
