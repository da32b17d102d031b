//! Files of other formats, known by their first bytes.

/// What numpy's arrays begin with.
pub const NPY: &[u8] = b"\x93NUMPY";

/// The longest header of such an array that is read. Those of plain arrays have 128 bytes.
pub const NPY_HEADER: u64 = 4096;

/// What a format's files begin with, and its name.
const FORMATS: [(&[u8], &str); 16] = [
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf", "7-Zip"),
    (b"PAR1", "Parquet"),
    (b"ARROW1", "Arrow"),
    (b"Obj\x01", "Avro"),
    (b"\x89HDF", "HDF5"),
    (b"GGUF", "GGUF"),
    (b"SQLite format 3", "SQLite"),
    (NPY, "npy"),
    (b"\x80", "Python pickle"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
];

/// What a file is in place of the wanted one, by its first bytes, and the remedy.
pub fn format(start: &[u8]) -> Option<(String, &'static str)> {
    let start = &start[..start.len().min(512)];
    if start.starts_with(b"version https://git-lfs") {
        return Some(("a pointer of Git LFS in its place".to_owned(), "get the file with git lfs pull"));
    }
    let text = start.trim_ascii_start().to_ascii_lowercase();
    if text.starts_with(b"<!doctype html") || text.starts_with(b"<html") {
        return Some(("a web page in its place".to_owned(), "get the file itself"));
    }
    // A text may begin with any letters.
    let is_text = start.iter().all(|byte| (b' '..0x7f).contains(byte) || byte.is_ascii_whitespace());
    let known = FORMATS.iter().find(|(magic, _)| !is_text && start.starts_with(magic));
    known.map(|(_, name)| (format!("a file of format {name}"), "convert, unpack or rename it"))
}

/// Whether the file begins as safetensors do: 8 bytes of length, and JSON. A length may have the bytes of another format.
pub fn is_safetensors(start: &[u8]) -> bool {
    matches!(start, [_, _, _, _, 0, 0, 0, 0, b'{', ..])
}

/// Whether the file holds pickled objects, as torch saves tensors: a zip file with `data.pkl`, or a pickle.
pub fn is_pickle(start: &[u8]) -> bool {
    let zip = start.starts_with(b"PK\x03\x04") && start.windows(8).any(|bytes| bytes == b"data.pkl");
    zip || matches!(start, [0x80, 2..=5, ..])
}

/// The remedy for an array that is of no use.
pub const SAVE: &str = "save it anew with numpy.save";

/// The shape of an array of numpy's, by its first [`NPY_HEADER`] bytes, or what they are in place of its header, and the remedy.
pub fn npy_shape(start: &[u8]) -> Result<Vec<u64>, (String, &'static str)> {
    let length = match start {
        [_, _, _, _, _, _, 1, _, a, b, ..] => u64::from(u16::from_le_bytes([*a, *b])) + 10,
        [_, _, _, _, _, _, 2 | 3, _, a, b, c, d, ..] => u64::from(u32::from_le_bytes([*a, *b, *c, *d])) + 12,
        _ => 0,
    };
    let take = "take one field: numpy.save(\"field.npy\", rows[\"NAME\"]) with a NAME of rows.dtype.names";
    let found = match start.starts_with(NPY) {
        false => ("a file that is not .npy".to_owned(), SAVE),
        true if start.windows(10).any(|bytes| bytes == b"'descr': [") => ("a structured array".to_owned(), take),
        true if length > NPY_HEADER => (format!("a header beyond the limit of {NPY_HEADER} bytes"), SAVE),
        true => ("a header that numpy does not write for an array of numbers".to_owned(), SAVE),
    };
    hotrow::internals::npy_shape(start).ok_or(found)
}
