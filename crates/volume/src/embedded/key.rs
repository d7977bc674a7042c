//! Files that hold a repository's key, encrypted with a password.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use super::{
    crypto::{Key, random},
    files::{File, Place},
    id::Id,
};
use crate::{Error, Result};

/// What a password costs to try: 2^15 rounds over 32 MiB.
const COST: (u8, u32, u32) = (15, 8, 1);
/// Key files that are tried.
const MOST: usize = 20;
/// No password may cost more memory than this to try; a hostile file would ask for all there is.
const MEMORY: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
struct Written {
    created: String,
    username: String,
    hostname: String,
    kdf: String,
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
    salt: String,
    data: String,
}

/// Makes a key for a new repository, and its file.
pub(super) async fn create(place: &Place, password: &str, hostname: &str) -> Result<Key> {
    let mut salt = [0; 64];
    random(&mut salt);
    let (log_n, r, p) = COST;
    let user = derive(password, &salt, log_n, r, p).await;
    let user = user.map_err(Error::Unexpected)?;
    let master = Key::random();
    let mut data = Vec::new();
    user.seal(&master.to_json(), &mut data);
    let written = Written {
        created: jiff::Timestamp::now().to_string(),
        username: "root".to_owned(),
        hostname: hostname.to_owned(),
        kdf: "scrypt".to_owned(),
        n: 1 << log_n,
        r,
        p,
        salt: STANDARD.encode(salt),
        data: STANDARD.encode(data),
    };
    let text = serde_json::to_vec(&written).expect("strings and numbers are JSON");
    place.put(File::Key, &Id::of(&text), text.into()).await?;
    Ok(master)
}

/// The key that a password opens.
pub(super) async fn open(place: &Place, password: &str) -> Result<Key> {
    let files = place.list(File::Key).await?;
    if files.is_empty() {
        return Err(Error::NoRepository(place.shown()));
    }
    let mut unusable = None;
    for (id, _) in files.into_iter().take(MOST) {
        let Some(text) = place.load(File::Key, &id).await? else {
            continue;
        };
        match try_file(&text, password).await {
            Ok(Some(key)) => return Ok(key),
            Ok(None) => {}
            Err(reason) => unusable = Some(File::Key.damaged(&id, reason)),
        }
    }
    Err(unusable.unwrap_or_else(|| Error::WrongPassword(place.shown())))
}

/// None when the password is not this one's.
async fn try_file(text: &[u8], password: &str) -> Result<Option<Key>, String> {
    let written: Written = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    if written.kdf != "scrypt" || !written.n.is_power_of_two() {
        return Err(format!("unknown derivation {} {}", written.kdf, written.n));
    }
    let memory = written
        .n
        .saturating_mul(128)
        .saturating_mul(written.r.into());
    if memory > MEMORY {
        return Err("its password costs too much memory to try".to_owned());
    }
    let decode = |text: &str| STANDARD.decode(text).map_err(|e| e.to_string());
    let (salt, mut data) = (decode(&written.salt)?, decode(&written.data)?);
    let log_n = u8::try_from(written.n.trailing_zeros()).map_err(|e| e.to_string())?;
    let user = derive(password, &salt, log_n, written.r, written.p).await?;
    let Ok(master) = user.open(&mut data) else {
        return Ok(None);
    };
    let master = Key::from_json(master).ok_or("it holds no key")?;
    Ok(Some(master))
}

async fn derive(password: &str, salt: &[u8], log_n: u8, r: u32, p: u32) -> Result<Key, String> {
    let (password, salt) = (password.to_owned(), salt.to_vec());
    let derived = tokio::task::spawn_blocking(move || {
        let params = scrypt::Params::new(log_n, r, p).map_err(|e| e.to_string())?;
        let mut bytes = [0; 64];
        scrypt::scrypt(password.as_bytes(), &salt, &params, &mut bytes)
            .map_err(|e| e.to_string())?;
        Ok(Key::new(&bytes))
    });
    derived.await.map_err(|e| e.to_string())?
}
