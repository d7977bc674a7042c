//! Lists as they come over the wire: pages sized by bytes, cut into objects while they arrive, so
//! that neither a page nor a large object is ever held twice.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::{Client, client::Body, core::Status};
use serde::Deserialize;
use tokio::sync::mpsc;

/// Bytes of objects in a [`Batch`], unless one object alone has more.
const BATCH: usize = 128 * 1024;
/// What a page should have, in bytes: few requests, and little for the API server to hold.
const PAGE: usize = 4 << 20;
const FIRST_LIMIT: usize = 500;
const MOST: usize = 5000;
/// A body of which nothing comes for so long is given up.
const SILENCE: Duration = Duration::from_secs(90);
/// A page whose transfer breaks off is asked for again, so many times.
const TRIES: u32 = 5;

/// Some objects of one list, as they came.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    /// The objects.
    pub fn objects(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let object = &self.bytes[start..*end];
            start = *end;
            object
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// What to list.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The collection: `/api/v1/namespaces/a/pods`.
    pub path: String,
    /// A label selector as the API takes it; empty selects all.
    pub selector: String,
    /// The most objects in a page; zero leaves it to the bytes.
    pub page: usize,
    /// Names, labels and the like only.
    pub metadata_only: bool,
}

/// Why a list is not whole.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody takes the objects any more.
    #[error("given up")]
    Closed,
    /// The API server refused, or could not be reached.
    #[error(transparent)]
    Kube(Box<kube::Error>),
    /// The answer stops in the middle.
    #[error("nothing came for {} seconds", SILENCE.as_secs())]
    Silent,
    /// What is asked for does not fit into a request.
    #[error("the selector is too long for a request: {0}")]
    TooLong(String),
    /// The answer is not a list.
    #[error("the answer is not a list: {0}")]
    NotAList(String),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(Box::new(error))
    }
}

impl Error {
    fn status(&self) -> Option<&Status> {
        match self {
            Self::Kube(error) => match &**error {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the API server said no to who we are.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(|s| s.code == 403)
    }

    /// Whether the collection is not there (any more).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|s| s.code == 404)
    }

    /// Whether the same request may work a moment later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Kube(error) => match &**error {
                kube::Error::Api(status) => matches!(status.code, 429 | 500 | 502 | 503 | 504),
                _ => true,
            },
            Self::NotAList(_) | Self::Silent => true,
            Self::Closed | Self::TooLong(_) => false,
        }
    }
}

/// Lists all that `query` selects into `out`. An object may come twice, when a page had to be asked
/// for again.
pub async fn all(client: &Client, query: &Query, out: &mpsc::Sender<Batch>) -> Result<(), Error> {
    let mut limit = match query.page {
        0 => FIRST_LIMIT,
        page => page.min(FIRST_LIMIT),
    };
    let most = if query.page == 0 { MOST } else { query.page };
    let mut token = None;
    let mut tries = 0;
    loop {
        match page(client, query, limit, token.as_deref(), Some(out)).await {
            Ok(page) => {
                tries = 0;
                if let Some(average) = page.bytes.checked_div(page.objects) {
                    limit = (PAGE / average.max(1)).clamp(10.min(most), most);
                }
                match page.head.metadata.r#continue {
                    Some(next) if !next.is_empty() => token = Some(next),
                    _ => return Ok(()),
                }
            }
            Err((error, expired)) => {
                tries += 1;
                if tries >= TRIES {
                    return Err(error);
                }
                // Less at a time: whoever takes the objects may be slow, and the API server's patience
                // is for a page.
                limit = (limit / 4).max(10.min(most));
                // The moment that the list is of has gone; the answer says how to go on in the
                // present one.
                if let Some(next) = expired {
                    token = Some(next);
                } else if error.status().is_some_and(|s| s.code == 410) {
                    token = None;
                } else if error.is_passing() {
                    let pause = Duration::from_millis(100 << (2 * tries).min(12));
                    tokio::time::sleep(pause.min(Duration::from_secs(10))).await;
                } else {
                    return Err(error);
                }
            }
        }
    }
}

/// Calls `look` for each object that `query` selects; again for some, when a page had to be asked
/// for again.
pub async fn each(
    client: &Client,
    query: &Query,
    mut look: impl FnMut(&[u8]),
) -> Result<(), Error> {
    let (out, mut batches) = mpsc::channel(1);
    let listing = async {
        let done = all(client, query, &out).await;
        drop(out);
        done
    };
    let looking = async {
        while let Some(batch) = batches.recv().await {
            Batch::objects(&batch).for_each(&mut look);
        }
    };
    futures::join!(listing, looking).0
}

/// How many objects a collection has, by asking for one.
pub async fn count(client: &Client, path: &str) -> Result<u64, Error> {
    let query = Query {
        path: path.to_owned(),
        metadata_only: true,
        ..Query::default()
    };
    let page = page(client, &query, 1, None, None)
        .await
        .map_err(|(error, _)| error)?;
    let remaining = page.head.metadata.remaining_item_count.unwrap_or_default();
    Ok(page.objects as u64 + u64::try_from(remaining).unwrap_or_default())
}

/// What a page was.
struct Page {
    head: Head,
    objects: usize,
    bytes: usize,
}

#[derive(Debug, Default, Deserialize)]
struct Head {
    #[serde(default)]
    metadata: ListMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    r#continue: Option<String>,
    remaining_item_count: Option<i64>,
}

type Expired = Option<String>;

async fn page(
    client: &Client,
    query: &Query,
    limit: usize,
    token: Option<&str>,
    out: Option<&mpsc::Sender<Batch>>,
) -> Result<Page, (Error, Expired)> {
    let request = request(query, limit, token).map_err(|error| (error, None))?;
    let response = client
        .send(request)
        .await
        .map_err(|error| (error.into(), None))?;
    let status = response.status();
    let mut body = response.into_body();
    if status != StatusCode::OK {
        return Err(refused(status, body).await);
    }
    let mut splitter = Splitter::default();
    let (mut objects, mut bytes) = (0, 0);
    loop {
        let frame = tokio::time::timeout(SILENCE, body.frame()).await;
        let Some(frame) = frame.map_err(|_| (Error::Silent, None))? else {
            break;
        };
        let frame = frame.map_err(|error| (error.into(), None))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        splitter.feed(&data).map_err(|why| (why, None))?;
        if splitter.batch.bytes.len() >= BATCH {
            let batch = splitter.take();
            if !batch.is_empty() {
                objects += batch.len();
                bytes += batch.bytes.len();
                send(out, batch).await?;
            }
        }
    }
    let (batch, head) = splitter.finish().map_err(|why| (why, None))?;
    objects += batch.len();
    bytes += batch.bytes.len();
    if !batch.is_empty() {
        send(out, batch).await?;
    }
    Ok(Page {
        head,
        objects,
        bytes,
    })
}

/// Hands objects over, if somebody wants them.
async fn send(out: Option<&mpsc::Sender<Batch>>, batch: Batch) -> Result<(), (Error, Expired)> {
    match out {
        Some(out) => out.send(batch).await.map_err(|_| (Error::Closed, None)),
        None => Ok(()),
    }
}

fn request(query: &Query, limit: usize, token: Option<&str>) -> Result<Request<Body>, Error> {
    let mut uri = format!("{}?limit={limit}", query.path);
    for (key, value) in [
        ("labelSelector", query.selector.as_str()),
        ("continue", token.unwrap_or_default()),
    ] {
        if !value.is_empty() {
            uri.push_str(&format!("&{key}={}", escape(value)));
        }
    }
    let accept = if query.metadata_only {
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    } else {
        "application/json"
    };
    Request::get(uri)
        .header(header::ACCEPT, accept)
        .body(Body::empty())
        .map_err(|error| Error::TooLong(error.to_string()))
}

/// Percent-encodes all but what no part of a URI minds.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The error that an answer stands for, and the token it gives to go on with.
async fn refused(status: StatusCode, body: Body) -> (Error, Expired) {
    #[derive(Default, Deserialize)]
    struct Continue {
        #[serde(default)]
        metadata: ListMeta,
    }
    let bytes = body.collect().await.map(|body| body.to_bytes());
    let bytes = bytes.unwrap_or_else(|_| Bytes::new());
    let expired = (status == StatusCode::GONE)
        .then(|| serde_json::from_slice::<Continue>(&bytes).unwrap_or_default())
        .and_then(|answer| answer.metadata.r#continue)
        .filter(|token| !token.is_empty());
    let answer = serde_json::from_slice::<Status>(&bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        let text = if text.is_empty() {
            status.to_string()
        } else {
            text
        };
        Status::failure(&text, "Unknown").with_code(status.as_u16())
    });
    (kube::Error::Api(Box::new(answer)).into(), expired)
}

/// Cuts a list into its objects while it arrives. What is not inside `items` is kept as `head`.
#[derive(Default)]
struct Splitter {
    batch: Batch,
    head: Vec<u8>,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The depth of the `items` array, while inside.
    items: Option<usize>,
}

impl Splitter {
    fn feed(&mut self, data: &[u8]) -> Result<(), Error> {
        let mut from = 0;
        let mut at = 0;
        while at < data.len() {
            if self.in_string {
                if self.escaped {
                    self.escaped = false;
                    at += 1;
                    continue;
                }
                let Some(step) = memchr::memchr2(b'"', b'\\', &data[at..]) else {
                    break;
                };
                at += step;
                if data[at] == b'"' {
                    self.in_string = false;
                } else {
                    self.escaped = true;
                }
                at += 1;
                continue;
            }
            let byte = data[at];
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    if self.items.is_none() && byte == b'[' && self.depth == 1 {
                        self.head.extend_from_slice(&data[from..=at]);
                        from = at + 1;
                        if is_items(&self.head) {
                            self.items = Some(2);
                        }
                    }
                    if self.items == Some(self.depth) {
                        from = at;
                    }
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or_else(odd)?;
                    match self.items {
                        Some(items) if self.depth == items => {
                            self.batch.bytes.extend_from_slice(&data[from..=at]);
                            self.batch.ends.push(self.batch.bytes.len());
                            from = at + 1;
                        }
                        Some(items) if self.depth < items => {
                            self.items = None;
                            from = at;
                        }
                        _ => {}
                    }
                }
                b',' if self.items == Some(self.depth) => from = at + 1,
                _ => {}
            }
            at += 1;
        }
        let rest = &data[from.min(data.len())..];
        match self.items {
            Some(items) if self.depth > items || self.in_string => {
                self.batch.bytes.extend_from_slice(rest);
            }
            Some(_) => {}
            None => self.head.extend_from_slice(rest),
        }
        Ok(())
    }

    /// The objects that are whole; one that is not stays.
    fn take(&mut self) -> Batch {
        let whole = self.batch.ends.last().copied().unwrap_or_default();
        let rest = self.batch.bytes.split_off(whole);
        let taken = std::mem::take(&mut self.batch);
        self.batch.bytes = rest;
        taken
    }

    fn finish(self) -> Result<(Batch, Head), Error> {
        if self.depth != 0 || self.head.is_empty() {
            return Err(Error::NotAList("it breaks off".to_owned()));
        }
        let head = serde_json::from_slice(&self.head)
            .map_err(|error| Error::NotAList(error.to_string()))?;
        Ok((self.batch, head))
    }
}

fn odd() -> Error {
    Error::NotAList("brackets do not match".to_owned())
}

/// Whether the array that `head` ends in is that of the items.
fn is_items(head: &[u8]) -> bool {
    let before = head.trim_ascii_end();
    let Some(before) = before.strip_suffix(b"[") else {
        return false;
    };
    let before = before.trim_ascii_end();
    before
        .strip_suffix(b":")
        .is_some_and(|key| key.trim_ascii_end().ends_with(b"\"items\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, step: usize) -> Result<(Vec<String>, Option<String>), String> {
        let mut splitter = Splitter::default();
        let mut batches = Vec::new();
        for chunk in text.as_bytes().chunks(step) {
            splitter.feed(chunk).map_err(|e| e.to_string())?;
            batches.push(splitter.take());
        }
        let (batch, head) = splitter.finish().map_err(|e| e.to_string())?;
        batches.push(batch);
        let objects = batches
            .iter()
            .flat_map(Batch::objects)
            .map(|o| String::from_utf8(o.to_vec()).unwrap())
            .collect();
        Ok((objects, head.metadata.r#continue))
    }

    #[test]
    fn lists_are_cut_into_objects_wherever_they_are_torn() {
        let lists = [
            r#"{"kind":"L","apiVersion":"v1","metadata":{"continue":"next"},"items":[{"a":"}]\"\\"},{"b":{"items":[{"c":1}]}}]}"#,
            r#"{"apiVersion":"v1","items":[{"a":"}]\"\\"},{"b":{"items":[{"c":1}]}}],"kind":"L","metadata":{"continue":"next"}}"#,
            "{\n \"items\" : [ {\"a\":\"}]\\\"\\\\\"} ,\n {\"b\":{\"items\":[{\"c\":1}]}} ] , \"metadata\": {\"continue\":\"next\"} }\n",
        ];
        for list in lists {
            for step in 1..list.len() + 1 {
                let (objects, next) = split(list, step).unwrap();
                assert_eq!(
                    objects,
                    [r#"{"a":"}]\"\\"}"#, r#"{"b":{"items":[{"c":1}]}}"#],
                    "{list} by {step}"
                );
                assert_eq!(next.as_deref(), Some("next"));
            }
        }
    }

    #[test]
    fn empty_and_broken_lists() {
        for empty in [
            r#"{"items":[]}"#,
            r#"{"items":null,"metadata":{}}"#,
            "{}",
            r#"{"items":[ ]}"#,
        ] {
            assert_eq!(split(empty, 3).unwrap().0, Vec::<String>::new(), "{empty}");
        }
        for bad in ["", r#"{"items":[{"a":1}"#, r#"{"items":[]}}"#, "no list"] {
            assert!(split(bad, 4).is_err(), "{bad}");
        }
    }
}
