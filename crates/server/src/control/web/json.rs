//! JSON as dnsdist writes it, `{"count": "1", "status": "purged"}`: scripts of operators look for just that text.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

/// A page that is this value.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut text = Vec::new();
        let mut serializer = Serializer::with_formatter(&mut text, Spaced);
        match self.0.serialize(&mut serializer) {
            Ok(()) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

/// The page that `make` makes, which reads files, waits or takes its time: not where others are served.
pub(super) async fn made_aside<T: Serialize + 'static>(
    make: impl FnOnce() -> T + Send + 'static,
) -> Response {
    let made = tokio::task::spawn_blocking(move || Json(make()).into_response()).await;
    made.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// One line, with a space behind each comma and colon.
struct Spaced;

impl Spaced {
    fn separate<W: ?Sized + Write>(writer: &mut W, first: bool) -> io::Result<()> {
        match first {
            true => Ok(()),
            false => writer.write_all(b", "),
        }
    }
}

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        Spaced::separate(writer, first)
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        Spaced::separate(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
