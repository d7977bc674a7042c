//! Certificates, keys and tokens of one bed, made anew each time.

use std::{
    fs,
    io::Write,
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    SanType,
};

/// Files in a bed's `pki` folder.
pub(crate) struct Pki {
    folder: PathBuf,
}

impl Pki {
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes an authority, certificates for the API server and the kubelet at `address`, the API
    /// server's own certificate towards the kubelet, the key of service account tokens, and the
    /// token file with the one administrator.
    pub(crate) fn make(folder: &Path, address: IpAddr, admin_token: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let pki = Self {
            folder: folder.to_owned(),
        };
        let mut params = CertificateParams::default();
        params.distinguished_name = name("bowline bed", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        pki.write("ca.crt", &authority.pem())?;

        let mut server = CertificateParams::new(
            [
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "localhost",
            ]
            .map(String::from),
        )?;
        server.distinguished_name = name("kube-apiserver", None);
        for ip in [
            address,
            IpAddr::from([127, 0, 0, 1]),
            SERVICE_ADDRESS.into(),
        ] {
            server.subject_alt_names.push(SanType::IpAddress(ip));
        }
        pki.sign("apiserver", server, &authority)?;

        let mut kubelet = CertificateParams::default();
        kubelet.distinguished_name = name("kubelet", None);
        kubelet.subject_alt_names.push(SanType::IpAddress(address));
        pki.sign("kubelet", kubelet, &authority)?;

        let mut client = CertificateParams::default();
        client.distinguished_name = name("kube-apiserver-kubelet-client", Some("system:masters"));
        pki.sign("kubelet-client", client, &authority)?;

        let accounts = KeyPair::generate()?;
        pki.write("sa.key", &accounts.serialize_pem())?;
        pki.write("sa.pub", &accounts.public_key_pem())?;
        pki.write(
            "tokens.csv",
            &format!("{admin_token},admin,admin,\"system:masters\"\n"),
        )?;
        Ok(pki)
    }

    fn sign(
        &self,
        file: &str,
        params: CertificateParams,
        authority: &CertifiedIssuer<'_, KeyPair>,
    ) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, authority)?;
        self.write(&format!("{file}.crt"), &certificate.pem())?;
        self.write(&format!("{file}.key"), &key.serialize_pem())
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        write_private(&self.file(name), text)
    }
}

/// The address of the API server's Service, the first of the service range.
pub(crate) const SERVICE_ADDRESS: [u8; 4] = [10, 96, 0, 1];

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}

fn name(common: &str, organisation: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    if let Some(organisation) = organisation {
        name.push(DnType::OrganizationName, organisation);
    }
    name
}

/// A secret that nobody can guess.
pub(crate) fn random_token() -> String {
    format!(
        "{}{}",
        uuid::Uuid::new_v4().simple(),
        uuid::Uuid::new_v4().simple()
    )
}
