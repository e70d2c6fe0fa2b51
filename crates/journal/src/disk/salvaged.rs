//! A file of which some sectors cannot be read: zeros stand in their place. To whoever looks for
//! records that is damage like any other, and what lies around it is found.

use crate::disk::File;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::io;

/// What is read at once where reading more has failed: a page.
const PIECE: u64 = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Salvaged<'a> {
    file: &'a dyn File,
    /// What could not be read: from and to, ascending where it was read in order.
    lost: Mutex<Vec<(u64, u64)>>,
}

impl<'a> Salvaged<'a> {
    pub(crate) fn new(file: &'a dyn File) -> Self {
        Self { file, lost: Mutex::default() }
    }

    /// What could not be read so far: from and to, ascending and apart.
    pub(crate) fn lost(&self) -> Vec<(u64, u64)> {
        let mut all = self.lost.lock().clone();
        all.sort_unstable();
        let mut lost: Vec<(u64, u64)> = Vec::new();
        for (from, to) in all {
            match lost.last_mut() {
                Some(last) if last.1 >= from => last.1 = last.1.max(to),
                _ => lost.push((from, to)),
            }
        }
        lost
    }

    fn read_in_pieces(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let at = offset + filled as u64;
            let length = usize::try_from(PIECE - at % PIECE).unwrap_or(usize::MAX);
            let length = length.min(buffer.len() - filled);
            let piece = &mut buffer[filled..filled + length];
            match self.file.read_at(piece, at) {
                Ok(read) if read < length => return Ok(filled + read),
                Ok(_) => {}
                Err(error) if is_unreadable(&error) => {
                    piece.fill(0);
                    self.lost.lock().push((at, at + length as u64));
                }
                Err(error) => return Err(error),
            }
            filled += length;
        }
        Ok(filled)
    }
}

impl File for Salvaged<'_> {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.file.read_at(buffer, offset) {
            Err(error) if is_unreadable(&error) => self.read_in_pieces(buffer, offset),
            result => result,
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

/// Whether an error says that the medium or the file system has lost something, as opposed to
/// being unable to serve anybody.
fn is_unreadable(error: &io::Error) -> bool {
    let lost = [Errno::IO, Errno::BADMSG, Errno::UCLEAN];
    Errno::from_io_error(error).is_some_and(|errno| lost.contains(&errno))
}
