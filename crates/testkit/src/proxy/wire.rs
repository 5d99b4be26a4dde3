//! PostgreSQL messages, parsed from a byte stream.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Larger than any message of a test; a longer one means that the stream was misread.
const FRAME_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Requests for TLS and for GSSAPI encryption.
const ENCRYPTION_REQUESTS: [u32; 2] = [80_877_103, 80_877_104];
const CANCEL_REQUEST: u32 = 80_877_102;

/// One typed message: a type byte, its length, its body.
#[derive(Debug)]
pub(super) struct Frame(Vec<u8>);

impl Frame {
    /// Returns the type byte of the message.
    pub(super) fn kind(&self) -> u8 {
        self.0[0]
    }

    /// Returns the message without type byte and length.
    pub(super) fn body(&self) -> &[u8] {
        &self.0[5..]
    }

    /// Returns the complete message.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the zero-terminated strings at the start of the body.
    pub(super) fn strings(&self) -> impl Iterator<Item = &[u8]> {
        self.body().split(|byte| *byte == 0)
    }
}

/// The first message of a client, which has no type byte.
#[derive(Debug)]
pub(super) enum Startup {
    /// The client requests encryption and waits for one byte in reply.
    Encryption,
    /// The client requests to cancel a statement of another connection.
    Cancel(Vec<u8>),
    Session(Vec<u8>),
}

/// The messages of one direction.
#[derive(Debug)]
pub(super) struct Frames<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Index of the first unread byte in the buffer.
    start: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    /// Reads messages from `reader`.
    pub(super) fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new(), start: 0 }
    }

    /// Returns the next complete message in the buffer, without waiting.
    pub(super) fn buffered(&mut self) -> io::Result<Option<Frame>> {
        Ok(self.take(1)?.map(Frame))
    }

    /// Waits for more bytes and returns how many arrived; 0 means the end of the stream.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.reader.read_buf(&mut self.buffer).await
    }

    /// Waits for the end of the stream, and buffers arriving bytes.
    pub(super) async fn ended(&mut self) -> io::Result<()> {
        while self.fill().await? > 0 {}
        Ok(())
    }

    /// Waits for a start-up message; returns `None` if the client has disconnected.
    pub(super) async fn startup(&mut self) -> io::Result<Option<Startup>> {
        let message = loop {
            if let Some(message) = self.take(0)? {
                break message;
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
        };
        let code = number(message.get(4..8).unwrap_or_default()).unwrap_or_default();
        Ok(Some(match code {
            code if ENCRYPTION_REQUESTS.contains(&code) => Startup::Encryption,
            CANCEL_REQUEST => Startup::Cancel(message),
            _ => Startup::Session(message),
        }))
    }

    /// Takes a message whose length, which includes itself, follows after `letters` bytes.
    fn take(&mut self, letters: usize) -> io::Result<Option<Vec<u8>>> {
        let unread = &self.buffer[self.start..];
        let Some(length) = unread.get(letters..letters + 4).and_then(number) else { return Ok(None) };
        let length = usize::try_from(length).map_or(usize::MAX, |length| length.saturating_add(letters));
        if !(letters + 4..=FRAME_BYTES_MAX).contains(&length) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a message of PostgreSQL"));
        }
        let Some(message) = unread.get(..length) else { return Ok(None) };
        let message = message.to_vec();
        self.start += length;
        Ok(Some(message))
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
pub(super) fn frame(kind: u8, body: &[u8]) -> Frame {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    Frame([&[kind], length.as_slice(), body].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_are_found_however_the_bytes_arrive() {
        let bytes = [frame(b'Q', b"SELECT 1\0").0, frame(b'S', b"").0].concat();
        for cut in 0..=bytes.len() {
            let mut frames = Frames::new((&bytes[..cut]).chain(&bytes[cut..]));
            let mut kinds = Vec::new();
            loop {
                while let Some(frame) = frames.buffered().unwrap() {
                    kinds.push(frame.kind());
                }
                if frames.fill().await.unwrap() == 0 {
                    break;
                }
            }
            assert_eq!(kinds, b"QS", "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn a_length_that_cannot_be_is_refused() {
        let mut frames = Frames::new(b"Q\0\0\0\x01".as_slice());
        frames.fill().await.unwrap();
        assert!(frames.buffered().is_err());
    }
}
