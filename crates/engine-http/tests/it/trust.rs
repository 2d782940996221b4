//! Texts that should be CAs.

use engine_http::Trust;

use crate::authority::Authority;

fn refusal(pem: &str) -> String {
    Trust::only(pem).unwrap_err().to_string()
}

#[test]
fn what_is_no_ca_is_told() {
    let empty = "there is no certificate in it: give PEM text, which begins with -----BEGIN CERTIFICATE-----";
    assert_eq!(refusal(""), empty);
    assert_eq!(refusal("MIIB"), empty);
    let good = Authority::new("ca").pem();
    let cut = format!("{good}-----BEGIN CERTIFICATE-----\nMIIB\n");
    assert!(
        refusal(&cut).starts_with("certificate 2 is not PEM text: "),
        "{}",
        refusal(&cut)
    );
    let no_certificate =
        format!("{good}{good}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    assert!(
        refusal(&no_certificate).starts_with("certificate 3 cannot be used as a CA: "),
        "{}",
        refusal(&no_certificate)
    );
}

#[test]
fn a_bundle_has_words_between_its_certificates() {
    let (one, other) = (Authority::new("old").pem(), Authority::new("new").pem());
    Trust::only(&format!("# the old one\n{one}\n# the new one\n{other}")).unwrap();
}
