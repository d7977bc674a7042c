//! The embedded API server answers as a real one did: every script against its recording.

use bowline_testbed::conformance;

#[tokio::test]
async fn the_embedded_server_answers_as_recorded() {
    let report = conformance::check_embedded().await.unwrap();
    println!("{report}");
    assert!(report.is_ok(), "{report}");
}
